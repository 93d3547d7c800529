-- ingest_files: one row per log of a batch: its place in the batch, and its lines' positions [first, stop).
create or replace temp table ingest_files as
with logs as (
    select unnest($file_ids) as file_id, unnest($lines) as lines, unnest(range(len($lines))) as file_index
),
running as (
    select file_id, lines, file_index, sum(lines) over (order by file_index) as stop_position
    from logs
)
select
    file_id::bigint as file_id,
    file_index::ubigint as file_index,
    (stop_position - lines)::bigint as first_position,
    stop_position::bigint as stop_position
from running
