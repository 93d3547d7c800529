-- One row per curated edge, its item's column the item's index.
create or replace temp view all_edges as
select *, item_index as item_column from indexed.interactions
