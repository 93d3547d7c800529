-- One row per log in the warehouse, with the name that it arrived by; null where it was read in before names were kept.
select
    file_id,
    (
        select any_value(name)
        from operations.arrivals
        where arrivals.file_id = log_files.file_id and arrivals.sha256 = log_files.sha256
            and outcome in ('new', 'changed')
    ) as name,
    path, sha256, bytes, events, rejects
from operations.log_files
order by file_id
