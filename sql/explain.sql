-- name: user
-- One row: the user's index (null where nothing of theirs counts as a like), how many events of theirs are in the
-- logs, and three users that there are.
select
    (select any_value(user_index) from users where trim(user_id, ' ') = $user_id) as user_index,
    (select sum(events)::bigint from users where trim(user_id, ' ') = $user_id) as events,
    (select string_agg(user_id, ', ') from (
        from users where user_index is not null order by user_index limit 3
    )) as others

-- name: history
-- One row per item that the user likes, newest first: when it was first seen, and how many users like it.
select
    item_id,
    first_at,
    users
from histories
join items using (item_index)
where user_index = $user_index
order by first_at desc nulls last, item_index
