-- One row per item asked for: its id, and how many users like it.
select
    item_index,
    item_id,
    users
from items
where item_index in (select unnest($items))
