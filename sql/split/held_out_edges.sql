-- One row per edge of a held-out user, its item's column null where no training user has it.
create or replace temp table held_out_edges as
select * from active_edges left join train_items using (item_index) where part <> 'train'
