-- name: event_counts
-- One row: the events of all logs, those between $since and $until, and those of them that count: as likes, or,
-- where values add up, with their weights.
with counted as (
    select
        ($since is null or occurred_at >= $since) and ($until is null or occurred_at::date <= $until) as is_inside,
        {counts} as counts
    from raw.events
)
select
    count(*) as events,
    count(*) filter (where is_inside) as inside,
    count(*) filter (where is_inside and counts) as likes
from counted

-- name: events_by_value
-- One row per event whose own value compares so with the threshold.
select *, (file_id << 40) | line_number as position, null::decimal(38, 9) as weight
from raw.events
where value {comparison} $threshold
  and ($since is null or occurred_at >= $since)
  and ($until is null or occurred_at::date <= $until)

-- name: weighted_events
-- weighted_events: one row per event whose weight counts: its kind's times its value, faded by the time until the log's last
-- event in the period. Decimals add up exactly, in any order; the bounds keep their sums from overflowing.
create or replace temp table weighted_events as
with period as (
    select
        *,
        if(len($kinds) = 0, 1, map($kinds::varchar[], $kind_weights::double[])[event]) as kind_weight
    from raw.events
    where ($since is null or occurred_at >= $since)
      and ($until is null or occurred_at::date <= $until)
)
select
    user_id,
    item_id,
    occurred_at,
    (file_id << 40) | line_number as position,
    greatest(-1e15, least(1e15, kind_weight * value * if(
        $half_life_days is null,
        1,
        pow(0.5, (epoch_us((select max(occurred_at) from period)) - epoch_us(occurred_at)) / 86400e6 / $half_life_days)
    )))::decimal(38, 9) as weight
from period
where kind_weight <> 0 and ($half_life_days is null or occurred_at is not null)

-- name: weighted_pairs
-- weighted_pairs: one row per (user, item) whose weights add up to the threshold: how many events, their sum, and when and
-- where it came to be a like: at the event from which on the sum of all events so far was never below the threshold. It was
-- last taken at its last event of a positive weight, which a return is not.
create or replace temp table weighted_pairs as
with running as (
    select
        *,
        row_number() over in_time as turn,
        sum(weight) over in_time as total
    from weighted_events
    window in_time as (
        partition by user_id, item_id order by occurred_at nulls first, position rows unbounded preceding
    )
), liked as (
    select
        *,
        turn > max(if(total < $threshold::decimal(38, 9), turn, 0)) over (partition by user_id, item_id) as is_liked
    from running
)
select
    user_id,
    item_id,
    count(*)::integer as event_count,
    arg_max(total, turn)::double as weight,
    min(occurred_at) filter (is_liked) as first_at,
    greatest(min(occurred_at) filter (is_liked), max(occurred_at) filter (weight > 0)) as last_at,
    arg_min(position, turn) filter (is_liked) as position
from liked
group by user_id, item_id
having bool_or(is_liked)

-- name: codes
-- One row per {side} that has a like, numbered from 0 in order of first appearance: a code that is cheaper than its id.
create or replace temp table {side}_codes as
with likes as (
    select
        {side}_id,
        count(*) as events,
        min(position) as position
    from {likes}
    group by {side}_id
)
select
    {side}_id,
    events,
    (row_number() over (order by position, {side}_id) - 1)::integer as code
from likes

-- name: vertices
-- indexed.{side}s: one row per {side} of an edge: its index, which is its code, and its id.
insert into indexed.{side}s
select
    code as {side}_index,
    {side}_id
from {side}_codes
order by code

-- name: weighted_edges
-- folded: one row per row of `weighted_pairs`, by codes and sorted by them.
create or replace temp table folded as
select
    users.code as user_code,
    items.code as item_code,
    event_count,
    coalesce(epoch_us(first_at), $never::bigint) as first_at,
    coalesce(epoch_us(last_at), $never::bigint) as last_at,
    pairs.position,
    weight
from weighted_pairs as pairs
join user_codes as users using (user_id)
join item_codes as items using (item_id)
order by user_code, item_code

-- name: likes
-- One row per event that counts as a like, of the users with the codes from $first on and below $end: its user's code, from 0,
-- its item's code, its time in microseconds, $never where it has none, and its place in file order packed into one integer.
select
    users.code - $first as user_code,
    items.code as item_code,
    coalesce(epoch_us(occurred_at), $never::bigint) as time,
    position
from {likes} as likes
join user_codes as users using (user_id)
join item_codes as items using (item_id)
where users.code >= $first
  and users.code < $end

-- name: interactions
-- indexed.interactions: one row per row of `folded`, with the place in the logs where it first appeared.
insert into indexed.interactions
select
    user_code as user_index,
    item_code as item_index,
    event_count,
    make_timestamp(nullif(first_at, $never::bigint)) as first_at,
    make_timestamp(nullif(last_at, $never::bigint)) as last_at,
    position >> 40 as first_file_id,
    position & 1099511627775 as first_line,
    weight
from folded

-- name: observed_negatives
-- One row per pair of a kept user and a kept item with an event that is no like by itself (where values add up, any), and no
-- like before it: the user considered the item and did not like it, or not until later.
select
    user_index,
    item_index,
    min(occurred_at) as first_at,
    any_value(likes.first_at) as liked_at
from {events} as events
join {users} using (user_id)
join {items} using (item_id)
left join {likes} as likes using (user_index, item_index)
where (likes.item_index is null or occurred_at < likes.first_at)
group by user_index, item_index
