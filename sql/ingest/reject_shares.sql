-- One row per log of a run: its rejects, its lines, and the first reject's line and reason. Lines of an adjacency
-- list hold many events each, so the last line number bounds a log's lines.
with ends as (
    select file_id, max(line_number) as last_line
    from raw.events
    where file_id in $1
    group by file_id
),
firsts as (
    select file_id, min(line_number) as first_line, arg_min(reason, line_number) as first_reason
    from raw.rejects
    where file_id in $1
    group by file_id
)
select
    file_id,
    rejects,
    rejects + least(events, coalesce(last_line, events)) as lines,
    first_line,
    first_reason
from operations.log_files
left join ends using (file_id)
left join firsts using (file_id)
where file_id in $1
