-- name: counts
-- One row per item that is liked: what the lists of the window of $days before the last like count, of all likes where
-- $days is null; `likes_since` and `window_likes_since` are those of all items since this one's first like. An item's first
-- event of any kind is null where it or the window is older than the log can tell.
with log as (
    select
        max(last_at) - to_days($days::integer) as start,
        max(last_at) as last
    from indexed.interactions
), likes_by_time as (
    select
        first_at,
        sum(count(*)) over (order by first_at desc)::bigint as likes_since
    from indexed.interactions
    where first_at is not null
    group by first_at
), first_events as (
    select
        item_id,
        min(occurred_at) as first_event
    from raw.events
    group by item_id
), liked as (
    select
        item_index,
        count(*) as all_users,
        count(*) filter ($days is null or last_at > start) as users,
        count(first_at) as likes,
        count(*) filter (first_at > start) as window_likes,
        min(first_at) as first_at
    from indexed.interactions, log
    group by item_index
)
select
    $days::integer as window_days,
    item_index,
    all_users,
    users,
    if(first_at <= start, likes - 1, 0) as likes,
    window_likes,
    likes_since - 1 as likes_since,
    (select count(*) from indexed.interactions, log where first_at > start) as window_likes_since,
    if(
        first_event > start and start >= (select min(occurred_at) from raw.events),
        (epoch_us(last) - epoch_us(first_event)) / 86400e6,
        null
    ) as age_days
from liked
cross join log
join indexed.items using (item_index)
join first_events using (item_id)
left join likes_by_time using (first_at)
order by item_index

-- name: lists
-- published.lists: one row per list, category, window and rank, best first; of equal values the item with more users, then the
-- one that came first in the logs.
insert into published.lists
with entries as (
    select 'popular' as list, window_days, item_index, users::double as value, users, null as expected_users, null as p_value
    from counted
    where users > 0
    union all
    select 'trending', window_days, item_index, trend, window_likes, expected_likes, p_value
    from counted
    where p_value <= $alpha
    union all
    select 'new', window_days, item_index, age_days, all_users, null, null
    from counted
    where age_days is not null
), cells as (
    select
        id as item_id,
        value,
        types[list_position(columns, name)] as type,
        separator
    from raw.attributes
    join operations.attribute_tables using (side)
    where side = 'item' and is_current
), item_categories as (
    select distinct
        item_id,
        trim(category) as category
    from cells, unnest(if(type = 'categories', string_split(value, separator), [value])) as names(category)
    where type in ('category', 'categories') and trim(category) <> ''
), scoped as (
    select null::varchar as category, * from entries
    union all
    select category, entries.*
    from entries
    join indexed.items using (item_index)
    join item_categories using (item_id)
    where list <> 'new'
)
select
    list,
    category,
    window_days,
    row_number() over (
        partition by list, category, window_days
        order by if(list = 'new', -value, value) desc, users desc, item_index
    )::integer as rank,
    item_id,
    value,
    users,
    expected_users,
    p_value
from scoped
join indexed.items using (item_index)
qualify rank <= $length
order by list, category nulls first, window_days, rank
