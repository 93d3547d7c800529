-- One row per reason why lines of a log file could not be read: how many, and the first of them.
select
    parse_filename(log_files.path) as file,
    rejects.reason,
    count(*) as lines,
    min(rejects.line_number) as first_line
from raw.rejects as rejects
join operations.log_files as log_files using (file_id)
group by file_id, log_files.path, rejects.reason
order by lines desc, file, reason
limit 20
