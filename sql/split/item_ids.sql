-- One row per item, in the order of their indices.
select item_index, item_id from indexed.items order by item_index
