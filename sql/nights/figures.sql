-- night_figures: one row per figure of a night that its events tell, some of them beside those of the last nights.
-- `hours_moved` is how many hours an event would have to be moved round the clock, on average, for the night's to be
-- spread over the day as the last nights' were: the earth mover's distance on the circle. `clock_off` is by how many hours
-- the last nights' spread, moved as it is, comes nearest to the night's: one step of maximum likelihood from 0. `users_away`
-- is the share of the users who were to come that did not: who had n of the E events of the last nights comes on a night of
-- e events with the probability 1 - exp(-n e / E).
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
select 'clock_off', -sum(more * slope / share) / nullif(sum(slope * slope / share), 0), false from slopes
union all
select 'users_away', sum(away::int - free_to_stay) / nullif(sum(1 - free_to_stay), 0), false from regulars
union all
select 'other_day_share', 1 - max(events) / sum(events), false from days
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
