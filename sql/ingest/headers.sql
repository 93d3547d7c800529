-- ingest_headers: one row per MOVIE: header of a batch, and one for the lines before the first header of each
-- file: the positions [first, stop) that it speaks for. movie is null where there is no header, or none
-- that can be read; a header that cannot be read is the first of the lines it spoils.
create or replace temp table ingest_headers as
with found as (
    select file_id, position as header, nullif(regexp_extract(line, '^\s*(\d+)\s*:\s*$', 1), '') as movie
    from ingest_lines
    where contains(line, ':') and not contains(line, ',')
),
starts as (
    select file_id, first_position - 1 as header, null::varchar as movie
    from ingest_files
),
all_of_them as (select * from found union all select * from starts)
select
    file_id, movie,
    greatest(first_position, header + (movie is not null)::int) as first,
    lead(header, 1, stop_position) over (partition by file_id order by header) as stop
from all_of_them
join ingest_files using (file_id)
