-- One row per log file that was ingested, newest first.
select
    parse_filename(path) as file,
    events,
    rejects,
    bytes,
    left(sha256, 12) as sha256,
    ingested_at
from operations.log_files
order by file_id desc
