-- One row per item that the user likes, newest first: when it was first seen, and how many users like it.
with history as (
    select item_id, item_index, first_at
    from curated.interactions
    where user_id = $user_id
), popularity as (
    select
        item_index,
        count(*) as users
    from curated.interactions
    semi join history using (item_index)
    group by item_index
)
select
    item_id,
    item_index,
    first_at,
    users
from history
join popularity using (item_index)
order by first_at desc nulls last, item_index
