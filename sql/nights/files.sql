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
    arg_min(rejects_before, arrived_at) as rejects_before
from operations.arrivals
where run_id in (from runs) and outcome in ('new', 'changed') and file_id in (select file_id from operations.log_files)
group by file_id
