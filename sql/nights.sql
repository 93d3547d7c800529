-- name: run_start
-- One row: when a run began, in UTC, and how many nights before its own were completed.
with this as (
    select coalesce(max(started_at), now() at time zone 'UTC') as started_at
    from operations.runs
    where run_id = $run_id
)
select
    started_at,
    (select count(*) from operations.complete_nights where night < started_at::date) as nights_before
from this

-- name: files
-- night_files: one row per log that a night's runs brought (no other runs of its date), with the lines that its name
-- had before the night; those after them are new. A header makes that one line too few.
create or replace temp table night_files as
with runs as (
    select run_id from operations.nights where night = $night
    union
    select $run_id
)
select
    file_id,
    arg_min(events_before + rejects_before, arrived_at) as lines_before,
    arg_min(events_before, arrived_at) as events_before,
    arg_min(rejects_before, arrived_at) as rejects_before,
    arg_min(outcome, arrived_at) = 'new' as is_new
from operations.arrivals
where run_id in (from runs) and outcome in ('new', 'changed') and file_id in (select file_id from operations.log_files)
group by file_id

-- name: counts
-- night_figures: one row per figure of a night computed without its events. `in_ratio`: nights are compared by
-- ratios.
create or replace temp table night_figures as
with brought as (
    select
        greatest(0, coalesce(sum(log_files.events - events_before), 0))::double as events,
        greatest(0, coalesce(sum(log_files.rejects - rejects_before), 0))::double as rejects
    from night_files
    join operations.log_files using (file_id)
), newest as (
    select coalesce(
        (select max(occurred_at) from raw.events where occurred_at <= $started_at),
        (select max(ingested_at) from operations.log_files where events > 0)
    ) as newest_at
)
select 'events' as figure, events as value, true as in_ratio from brought
union all
select 'delivered', (events > 0)::int, false from brought
union all
select 'reject_share', rejects / (events + rejects), false from brought where events > 0
union all
select 'hours_old', epoch($started_at - newest_at) / 3600, false from newest

-- name: earlier_files
-- earlier_files: one row per log of the last complete nights, of $nights at the most. A night that brought over ten
-- times as much as the small ones of them, such as all years' log on the first, is no baseline and takes long
-- to read.
create or replace temp table earlier_files as
with nights as (
    select night, value as events
    from operations.complete_nights
    join operations.nights using (night, run_id)
    where night < $night and figure = 'events' and value > 0
    order by night desc
    limit $nights
), alike as (
    select night from nights where events <= 10 * (select quantile_disc(events, 0.25) from nights)
)
select distinct file_id
from operations.arrivals
where outcome in ('new', 'changed') and run_id in (select run_id from operations.nights where night in (from alike))

-- name: events
-- night_events: one row per event that the night brought.
create or replace temp table night_events as
select
    user_id,
    item_id,
    value,
    occurred_at
from raw.events
join night_files using (file_id)
where line_number > lines_before

-- name: earlier_events
-- earlier_events: one row per event of the last complete nights.
create or replace temp table earlier_events as
select
    user_id,
    item_id,
    value,
    occurred_at
from raw.events
left join night_files using (file_id)
where file_id in (from earlier_files) and coalesce(line_number <= lines_before, true)

-- name: figures
-- night_figures: one row per figure of a night computed from its events, some compared with the last nights'.
-- `hours_moved` is how many hours an event would have to be moved round the clock, on average, for the night's to be
-- spread over the day as the last nights' were: the earth mover's distance on the circle. `clock_shift` is by how many hours
-- the last nights' spread, moved as it is, comes nearest to the night's: one step of maximum likelihood from 0.
-- `missing_user_share` is the share of the expected users that are missing: a user with n of the E events of the last
-- nights comes on a night of e events with the probability 1 - exp(-n e / E).
insert into night_figures
with night as (
    from night_events
), sizes as (
    select
        nullif(count(*), 0) as events,
        count(distinct hash(user_id, item_id, value, occurred_at)) as different
    from night
), users as (
    select user_id, count(*) as events from night group by user_id
), items as (
    select item_id, count(*) as events from night group by item_id
), before as (
    select user_id, item_id
    from raw.events
    left join night_files using (file_id)
    where coalesce(line_number <= lines_before, true)
), days as (
    select count(*) as events from night where occurred_at is not null group by occurred_at::date
), hour_counts as (
    select hour(occurred_at) as hour, count(*) as tonight, 0 as earlier
    from night where occurred_at is not null group by hour
    union all
    select hour(occurred_at), 0, count(*) from earlier_events where occurred_at is not null group by all
    union all
    select hour, 0, 0 from range(24) as hours (hour)
), hours as (
    select
        hour,
        sum(tonight) / nullif(sum(sum(tonight)) over (), 0) as tonight,
        sum(earlier) / nullif(sum(sum(earlier)) over (), 0) as earlier
    from hour_counts
    group by hour
), ahead as (
    select sum(tonight - earlier) over (order by hour) as share from hours
), slopes as (
    select
        hours.hour,
        hours.tonight - hours.earlier as more,
        (later.earlier - sooner.earlier) / 2 as slope,
        hours.earlier + 0.001 as share  -- an hour that never had an event counts for little
    from hours
    join hours as later on later.hour = (hours.hour + 1) % 24
    join hours as sooner on sooner.hour = (hours.hour + 23) % 24
), regulars as (
    select
        users.user_id is null as away,
        exp(-count(*) * (select events from sizes) / sum(count(*)) over ()) as free_to_stay
    from earlier_events
    left join users using (user_id)
    group by user_id, away
), item_counts as (
    select item_id, count(*) as events from earlier_events group by item_id
), overlap as (
    select sum(least(items.events / sizes.events, item_counts.events / earlier.events)) as share
    from items
    join item_counts using (item_id), sizes, (select sum(events) as events from item_counts) as earlier
), value_counts as (
    select value, count(*) as tonight, 0 as earlier from night group by value
    union all
    select value, 0, count(*) from earlier_events group by value
), values_in_order as (
    select
        sum(tonight) as tonight,
        sum(earlier) as earlier,
        sum(sum(earlier)) over (order by value) - sum(earlier) / 2 as below
    from value_counts
    group by value
), pairs as (
    select distinct user_id, item_id from earlier_events
)
select 'users' as figure, count(*)::double as value, true as in_ratio from users
union all
select 'items', count(*), true from items
union all
select 'new_user_share', avg((user_id not in (select user_id from before semi join users using (user_id)))::int), false
from users
union all
select 'new_item_share', avg((item_id not in (select item_id from before semi join items using (item_id)))::int), false
from items
union all
select 'value_level', sum(tonight * below) / nullif(sum(tonight) * sum(earlier), 0), false from values_in_order
union all
select 'hours_moved', 24 * avg(abs(share - (select median(share) from ahead))), false from ahead
union all
select 'clock_shift', -sum(more * slope / share) / nullif(sum(slope * slope / share), 0), false from slopes
union all
select 'missing_user_share', sum(away::int - free_to_stay) / nullif(sum(1 - free_to_stay), 0), false from regulars
union all
select 'off_day_share', 1 - max(events) / sum(events), false from days
union all
select 'item_overlap', share, false from overlap
union all
select 'repeat_share', (select count(*) from night semi join pairs using (user_id, item_id)) / events, false from sizes
union all
select 'doubled_share', 1 - different / events, false from sizes
union all
select 'heaviest_user_share', max(events) / sum(events), true from users
union all
select 'heaviest_item_share', max(events) / sum(events), true from items
union all
select 'top_users_share', if(sum(events) < 100, null, list_sum(max(events, 5)) / sum(events)), false from users

-- name: exponents
-- night_figures: one row per side, with the exponent of its degrees' power law.
create or replace temp table night_figures as
select
    side || '_exponent' as figure,
    exponent as value,
    false as in_ratio
from diagnostics.power_law_fits
where family = 'power_law'

-- name: usual
-- {table}: one row per figure of `night_figures`, with its usual range: the median of the same weekday's nights,
-- where there are $weekdays of them, moved by how the last $nights nights lay about their own weekdays' medians. The
-- spread is that of these nights: 1.4826 times the median absolute deviation, which for normal values is their standard
-- deviation. Before weekdays are distinguished it also covers all but the outer tenths of the nights, so that weekends do
-- not stand out.
insert into {table}
with known as (
    select
        figure,
        night,
        if(nights.in_ratio, ln(nights.value), nights.value) as x
    from operations.complete_nights
    join {table} as nights using (night, run_id)
    where night < $night and (nights.value > 0 or not nights.in_ratio)
), history as (
    select
        *,
        row_number() over (partition by figure order by night desc) as place,
        median(x) over (partition by figure) as level
    from known
    where x is not null
    qualify place <= $history
), weekdays as (
    select figure, dayofweek(night) as weekday, median(x) as of_weekday
    from history
    group by figure, weekday
    having count(*) >= $weekdays
), apart as (
    select
        history.figure,
        tonight.of_weekday as of_tonight,
        if(tonight.of_weekday is null, x, x - coalesce(weekdays.of_weekday, level)) as x
    from history
    left join weekdays on weekdays.figure = history.figure and weekdays.weekday = dayofweek(night)
    left join weekdays as tonight on tonight.figure = history.figure and tonight.weekday = dayofweek($night::date)
    where place <= $nights
), judged as (
    select
        figure,
        coalesce(any_value(of_tonight), 0) + median(x) as usual,
        greatest(
            1.4826 * mad(x),
            if(any_value(of_tonight) is null, (quantile_cont(x, 0.9) - quantile_cont(x, 0.1)) / 2.5631, 0)
        ) as spread,
        count(*) as compared_with
    from apart
    group by figure
)
select
    $run_id,
    $night,
    figure,
    value,
    in_ratio,
    if(compared_with >= $least, if(in_ratio, exp(usual), usual), null),
    if(compared_with >= $least, spread, null),
    coalesce(compared_with, 0)
from night_figures
left join judged using (figure)

-- name: unusual
-- One row per figure of a night that was warned of: the rule that it broke, and the range that would not have.
with broken as (
    select
        contract,
        rule,
        unnest(from_json(
            samples, '[{"figure": "VARCHAR", "value": "DOUBLE", "usual_from": "DOUBLE", "usual_to": "DOUBLE"}]'
        )) as breach
    from operations.contract_results
    where run_id = $run_id and not success and rule not in ('columns', 'figure_once')
        and contract in ('operations.nights', 'diagnostics.nightly_exponents')
)
select distinct
    contract,
    rule,
    breach.figure as figure,
    breach.value as value,
    breach.usual_from as usual_from,
    breach.usual_to as usual_to
from broken
order by contract, rule, figure
