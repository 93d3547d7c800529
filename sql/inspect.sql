-- name: counts
-- One row: the size of the events that were read, their span, and how much of them is repeated.
with pairs as (
    select user_id, item_id, count(*) as events from raw.events group by all
)
select
    (select count(*) from raw.events) as events,
    (select count(*) from raw.rejects) as rejects,
    (select count(distinct user_id) from raw.events) as users,
    (select count(distinct item_id) from raw.events) as items,
    (select count(*) from pairs) as pairs,
    (select min(value) from raw.events) as lowest,
    (select max(value) from raw.events) as highest,
    (select min(occurred_at) from raw.events) as first_at,
    (select max(occurred_at) from raw.events) as last_at

-- name: kept
-- One row: how many users, items and likes the filters of binarize leave, items first.
with likes as (
    select distinct user_id, item_id from raw.events where value >= $threshold
),
of_items as (
    select * from likes qualify count(*) over (partition by item_id) >= $min_item_edges
),
of_users as (
    select * from of_items qualify count(*) over (partition by user_id) >= $min_user_edges
)
select
    (select count(*) from likes) as likes,
    count(*) as kept,
    count(distinct user_id) as users,
    count(distinct item_id) as items
from of_users

-- name: rejects
-- One row per reason for which lines were rejected: how many, and the first of them.
select reason, count(*) as lines, min(line_number) as line_number, arg_min(line, line_number) as line
from raw.rejects
group by reason
order by lines desc, reason

-- name: largest
-- One row per side: the user and the item with the most events.
with sides as (
    select 'user' as side, user_id as id, count(*) as events from raw.events group by user_id
    union all
    select 'item', item_id, count(*) from raw.events group by item_id
)
select side, arg_max(id, events) as id, max(events) as events
from sides
group by side
order by side desc
