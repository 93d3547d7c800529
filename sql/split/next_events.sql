-- One row per curated edge with its role; `event_count` is of events before the cut, as no later one may be learned from.
-- `position` is where the first of these was in the logs; null where that is the edge's own first line.
create or replace temp table next_events_roles as
with astride as (  -- edges with events on both sides of the cut
    select
        user_index,
        item_index,
        user_id,
        item_id
    from curated.interactions
    where first_at < $next_from and last_at >= $next_from
), earlier as (
    select
        user_index,
        item_index,
        count(*)::integer as events,
        min((file_id << 40) | line_number) as position
    from raw.events
    join astride using (user_id, item_id)
    where value >= $threshold
      and occurred_at < $next_from
      and ($since is null or occurred_at >= $since)
    group by user_index, item_index
), known_users as (
    select distinct user_index, true as user_known from indexed.interactions where first_at < $next_from
), known_items as (
    select
        item_index,
        (row_number() over (order by item_index) - 1)::integer as item_column
    from (select distinct item_index from indexed.interactions where first_at < $next_from)
)
select
    edges.user_index,
    edges.item_index,
    item_column,
    coalesce(events, event_count) as event_count,
    first_at,
    position,
    case
        when first_at < $next_from then 'train'
        when first_at >= $next_from and user_known and item_column is not null then 'next'
        else 'dropped'
    end as role
from indexed.interactions as edges
left join earlier using (user_index, item_index)
left join known_users using (user_index)
left join known_items using (item_index)
