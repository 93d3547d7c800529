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
-- night_figures: one row per figure of a night computed without its events. `in_ratio`: nights are compared by ratios.
-- `noise` is the standard error of the value.
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
select 'events' as figure, events as value, true as in_ratio, sqrt(events) as noise from brought
union all
select 'delivered', (events > 0)::int, false, 0 from brought
union all
select 'reject_share', rejects / (events + rejects), false, 0 from brought where events > 0
union all
select 'hours_old', epoch($started_at - newest_at) / 3600, false, 0 from newest

-- name: earlier_files
-- earlier_files: one row per log of the last complete nights, of 14 at the most. A night that brought over ten
-- times as much as the small ones of them, such as all years' log on the first, is no baseline and takes long
-- to read.
create or replace temp table earlier_files as
with nights as (
    select night, value as events
    from operations.complete_nights
    join operations.nights using (night, run_id)
    where night < $night and figure = 'events' and value > 0
    order by night desc
    limit 14
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
-- spread over the day as the last nights' were: the earth mover's distance on the circle. A level is the probability
-- that the night's value, or user in the order of ids, comes after one of the last nights', where a tie counts half.
-- `popularity` is how often the night's items came before, against how often an event of the last nights' would let
-- expect.
insert into night_figures
with both_times as (
    select *, 1 as tonight, 0 as earlier from night_events
    union all
    select *, 0, 1 from earlier_events
), night as (
    from night_events
), sizes as (
    select
        nullif(count(*), 0) as events,
        count(distinct hash(user_id, item_id, value, occurred_at)) as different,
        median(epoch(occurred_at)) as time
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
), hours as (
    select
        hour,
        sum(tonight) / nullif(sum(sum(tonight)) over (), 0) as tonight,
        sum(earlier) / nullif(sum(sum(earlier)) over (), 0) as earlier
    from (
        select hour(occurred_at) as hour, tonight, earlier from both_times where occurred_at is not null
        union all
        select hour, 0, 0 from range(24) as hours (hour)
    )
    group by hour
), ahead as (
    select sum(tonight - earlier) over (order by hour) as share from hours
), marks as (
    select 'value_level' as figure, value as number, null as id, tonight, earlier from both_times
    union all
    select 'user_level', null, user_id, tonight, earlier from both_times
), marks_in_order as (
    select
        figure,
        sum(tonight) as tonight,
        sum(earlier) as earlier,
        sum(sum(earlier)) over (partition by figure order by number, id) - sum(earlier) / 2 as below
    from marks
    group by figure, number, id
), item_counts as (
    select item_id, count(*) as events from earlier_events group by item_id
), popularity as (
    select
        greatest(avg(coalesce(item_counts.events, 0)) / any_value(usual.events), 0.001) as value,
        stddev_pop(coalesce(item_counts.events, 0)) / sqrt(count(*)) / any_value(usual.events) as noise
    from night
    left join item_counts using (item_id), (select sum(events * events) / sum(events) as events from item_counts) as usual
)
select
    'new_user_share' as figure,
    avg((user_id not in (select user_id from before semi join users using (user_id)))::int) as value,
    false as in_ratio,
    0.5 / sqrt(count(*)) as noise
from users
union all
select
    'new_item_share',
    avg((item_id not in (select item_id from before semi join items using (item_id)))::int),
    false,
    0.5 / sqrt(count(*))
from items
union all
select
    figure,
    sum(tonight * below) / nullif(sum(tonight) * sum(earlier), 0),
    false,
    0.3 / sqrt((select count(*) from users))
from marks_in_order
group by figure
union all
select 'hours_moved', 24 * avg(abs(share - (select median(share) from ahead))), false, 3 / sqrt(any_value(events))
from ahead, sizes
union all
select 'days_ahead', (time - (select median(epoch(occurred_at)) from earlier_events)) / 86400, false, 0 from sizes
union all
select 'popularity', value, true, noise from popularity
union all
select 'doubled_share', 1 - different / events, false, 0.5 / sqrt(events) from sizes
union all
select 'heaviest_user_share', if(sum(events) < 30, null, max(events) / sum(events)), false, 0.3 / sqrt(sum(events))
from users

-- name: pairs
-- One row per event of the night, and per event of the last $pairs before it: the places of user and item in the order
-- of ids.
with before as (
    select user_id, item_id
    from raw.events
    left join night_files using (file_id)
    where coalesce(line_number <= lines_before, true)
    order by file_id desc, line_number desc
    limit $pairs
), tonight as (
    select user_id, item_id from night_events limit $pairs
)
select
    dense_rank() over (order by user_id) - 1 as user,
    dense_rank() over (order by item_id) - 1 as item,
    is_tonight
from (select *, false as is_tonight from before union all select *, true from tonight)

-- name: judge
-- operations.nights: one row per figure of `night_figures`, with its usual value: the median of the same weekday's
-- nights, where there are two of them, moved by how the last 14 nights lay about their own weekdays' medians.
-- The spread is that of these nights: 1.4826 times the median absolute deviation, which for normal values is their
-- standard deviation. Before weekdays are distinguished it also covers all but the outer tenths of the nights, so that
-- weekends do not stand out. A value outside of `usual_from` to `usual_to` is unusual: it lies more spreads off than
-- $limits say, or, where nothing is usual yet, beyond their bound. Few events are not unusual between 24
-- December and 6 January, when shops close, and a night without any is judged by `delivered` alone.
insert into operations.nights
with limits as (
    select unnest($limits, recursive := true)
), known as (
    select
        figure,
        night,
        if(night_figures.in_ratio, ln(nights.value), nights.value) as x
    from operations.complete_nights
    join operations.nights using (night, run_id)
    join night_figures using (figure)
    where night < $night and (nights.value > 0 or not night_figures.in_ratio)
), history as (
    select
        *,
        row_number() over (partition by figure order by night desc) as place,
        median(x) over (partition by figure) as level
    from known
    where x is not null
    qualify place <= 56
), weekdays as (
    select figure, dayofweek(night) as weekday, median(x) as of_weekday
    from history
    group by figure, weekday
    having count(*) >= 2
), apart as (
    select
        history.figure,
        tonight.of_weekday as of_tonight,
        if(tonight.of_weekday is null, x, x - coalesce(weekdays.of_weekday, level)) as x
    from history
    left join weekdays on weekdays.figure = history.figure and weekdays.weekday = dayofweek(night)
    left join weekdays as tonight on tonight.figure = history.figure and tonight.weekday = dayofweek($night::date)
    where place <= 14
), known_levels as (
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
    having count(*) >= 7
), judged as (
    select
        *,
        greatest(spread, least_spread, if(in_ratio, noise / exp(usual), noise)) as wide,
        of_volume and strftime($night::date, '%m-%d') not between '01-07' and '12-23' or in_ratio and value = 0 as is_untold
    from night_figures
    left join known_levels using (figure)
    left join limits using (figure)
)
select
    $run_id,
    $night,
    figure,
    value,
    in_ratio,
    if(in_ratio, exp(usual), usual),
    spread,
    coalesce(compared_with, 0),
    if(is_untold, null, if(in_ratio, exp(usual - below * wide), usual - below * wide)),
    coalesce(if(in_ratio, exp(usual + above * wide), usual + above * wide), bound)
from judged

-- name: unusual
-- One row per unusual figure of a run's night, the farthest from the usual first.
select
    figure,
    value,
    usual_from,
    usual_to
from operations.nights
where run_id = $run_id and (value < usual_from or value > usual_to)
order by abs(if(in_ratio, ln(greatest(value, 0.001) / usual), value - usual)) / nullif(spread, 0) desc nulls last, figure
