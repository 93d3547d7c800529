-- One row per user of the logs: their index (null where nothing of theirs counts as a like), and how many events of
-- theirs are in the logs.
with seen as (
    select
        user_id,
        count(*) as events
    from raw.events
    group by user_id
)
select
    user_id,
    user_index,
    events
from seen
left join indexed.users using (user_id)
order by user_index nulls last, user_id
