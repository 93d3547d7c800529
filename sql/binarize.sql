-- name: event_counts
-- One row: the events of all logs, those between $since and $until, and those of them that count as likes.
with counted as (
    select
        value,
        ($since is null or occurred_at >= $since) and ($until is null or occurred_at::date <= $until) as is_inside
    from raw.events
)
select
    count(*) as events,
    count(*) filter (where is_inside) as inside,
    count(*) filter (where is_inside and value >= $threshold) as likes
from counted

-- name: codes
-- One row per {side} that has a like, numbered from 0 in order of first appearance: a code that is cheaper than its id.
create or replace temp table {side}_codes as
with likes as (
    select
        {side}_id,
        count(*) as events,
        min((file_id << 40) | line_number) as position
    from raw.events
    where value >= $threshold
      and ($since is null or occurred_at >= $since)
      and ($until is null or occurred_at::date <= $until)
    group by {side}_id
)
select
    {side}_id,
    events,
    (row_number() over (order by position, {side}_id) - 1)::integer as code
from likes

-- name: vertices
-- indexed.{side}s: one row per {side} of an edge: its index, which is the column {index} of {vertices}, and its id.
insert into indexed.{side}s
select
    {index} as {side}_index,
    {side}_id
from {vertices}
order by {index}

-- name: edges
-- edges: one row per (user, item) that has a like, by their codes: repeats are one edge. Created empty.
create or replace temp table edges (
    user_code integer,
    item_code integer,
    event_count integer,
    first_at bigint,
    last_at bigint,
    position bigint
)

-- name: likes
-- One row per event that counts as a like, of the users with the codes from $first on and below $end: its user's code, from 0,
-- its item's code, its time in microseconds, $never where it has none, and its place in file order packed into one integer.
select
    users.code - $first as user_code,
    items.code as item_code,
    coalesce(epoch_us(occurred_at), $never::bigint) as time,
    (file_id << 40) | line_number as position
from raw.events
join user_codes as users using (user_id)
join item_codes as items using (item_id)
where value >= $threshold
  and ($since is null or occurred_at >= $since)
  and ($until is null or occurred_at::date <= $until)
  and users.code >= $first
  and users.code < $end

-- name: interactions
-- indexed.interactions: one row per row of {edges}, with the place in the logs where it first appeared.
insert into indexed.interactions
select
    user_index,
    item_index,
    event_count,
    make_timestamp(nullif(first_at, $never::bigint)) as first_at,
    make_timestamp(nullif(last_at, $never::bigint)) as last_at,
    position >> 40 as first_file_id,
    position & 1099511627775 as first_line
from {edges}

-- name: indices
-- One row per {side} that has an edge, numbered from 0 in order of first appearance.
create or replace temp table {side}_indices as
with appearances as (
    select {side}_code as code, min(position) as position from edges group by {side}_code
)
select
    code,
    {side}_id,
    (row_number() over (order by position, {side}_id) - 1)::integer as {side}_index
from appearances
join {side}_codes using (code)

-- name: numbered
-- numbered: one row per edge that is left, by index.
create or replace temp view numbered as
select
    user_index,
    item_index,
    event_count,
    first_at,
    last_at,
    position
from edges
join user_indices as users on users.code = edges.user_code
join item_indices as items on items.code = edges.item_code

-- name: observed_negatives
-- indexed.observed_negatives: one row per pair of a kept user and a kept item with an event between $since and $until that is no
-- like, and no like before it: the user considered the item and did not like it, or not until later.
insert into indexed.observed_negatives
select
    user_index,
    item_index,
    min(occurred_at) as first_at,
    any_value(likes.first_at) as liked_at
from raw.events
join indexed.users using (user_id)
join indexed.items using (item_id)
left join indexed.interactions as likes using (user_index, item_index)
where value < $threshold
  and ($since is null or occurred_at >= $since)
  and ($until is null or occurred_at::date <= $until)
  and (likes.first_line is null or occurred_at < likes.first_at)
group by user_index, item_index
