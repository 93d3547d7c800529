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

-- name: rejects
-- One row per reason for which lines were rejected: how many, and the first of them.
select reason, count(*) as lines, min(line_number) as line_number, arg_min(line, line_number) as line
from raw.rejects
group by reason
order by lines desc, reason
