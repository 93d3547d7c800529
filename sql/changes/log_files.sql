-- One row per log file that was ingested after the previous run had ended.
select
    parse_filename(path) as file,
    events,
    rejects,
    ingested_at
from operations.log_files
where ingested_at > (select ended_at from operations.runs where run_id = $previous_run_id)
order by file_id desc
