-- ingest_lines: one row per line of the logs of a batch, with its place in the batch (from 0) and in its file
-- (from 1).
create or replace temp view ingest_lines as
with numbered as (
    select line, file_index, rowid - {first_row} as position
    from ingest_text
)
select files.file_id, position, position - files.first_position + 1 as line_number, line
from numbered
join ingest_files as files using (file_index)
