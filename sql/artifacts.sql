-- name: facts
-- One row: when a run began, what it read, and how many likes there are.
with this as (
    select started_at from operations.runs where run_id = $run_id
)
select
    started_at,
    (select count(*) from operations.log_files where ingested_at >= started_at) as new_log_files,
    (select coalesce(sum(events), 0)::bigint from operations.log_files where ingested_at >= started_at) as new_events,
    (select count(*) from operations.arrivals where run_id = $run_id and outcome = 'changed') as changed_files,
    (select count(*) from indexed.interactions) as likes,
    (select count(*) from indexed.users) as users,
    (select count(*) from indexed.items) as items
from this
