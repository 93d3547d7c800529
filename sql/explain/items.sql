-- One row per item asked for: its id, and how many users like it.
select
    item_index,
    any_value(item_id) as item_id,
    count(*) as users
from curated.interactions
where item_index in (select unnest($items))
group by item_index
