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
