-- One row per item that is liked: its index, its id, and how many users like it.
select
    item_index,
    any_value(item_id) as item_id,
    count(*) as users
from curated.interactions
group by item_index
order by item_index
