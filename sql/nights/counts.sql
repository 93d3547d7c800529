-- night_figures: one row per figure of a night that needs no look at its events. `in_ratio`: nights are compared by
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
