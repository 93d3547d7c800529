-- One row per (user, item) that has a like: repeats folded into one edge.
create or replace temp table edges as
with coded as (
    select
        (users.code << 32) | items.code as pair,
        occurred_at,
        position
    from liked_events
    join user_codes as users using (user_id)
    join item_codes as items using (item_id)
)
select
    (pair >> 32)::integer as user_code,
    (pair & 4294967295)::integer as item_code,
    count(*)::integer as event_count,
    min(occurred_at) as first_at,
    max(occurred_at) as last_at,
    min(position) as position
from coded
group by pair
