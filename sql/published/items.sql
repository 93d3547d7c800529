-- One row per item that is liked: its index, its id, and how many users like it.
select
    item_index,
    item_id,
    users
from indexed.items
join (select item_index, count(*) as users from indexed.interactions group by item_index) using (item_index)
order by item_index
