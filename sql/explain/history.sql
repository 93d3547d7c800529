-- One row per item that the user likes, newest first: when it was first seen, and how many users like it.
select
    item_id,
    item_index,
    first_at,
    users
from histories
join items using (item_index)
where user_index = $user_index
order by first_at desc nulls last, item_index
