-- name: newest
-- One row: the newest time of the events that the query gave, or of all if it gave none, and the highest number of the
-- files with its new rows. A time later than its reading does not say how far the logs were read.
with read as (
    select
        if(occurred_at <= ingested_at, occurred_at, null) as occurred_at,
        regexp_matches(path, '(^|/)source(-\d+)?\.parquet$') as is_landed,
        try_cast(regexp_extract(path, '(^|/)source-(\d{6,})\.parquet$', 2) as bigint) as number
    from raw.events
    join operations.log_files using (file_id)
)
select
    if(bool_or(is_landed), max(occurred_at) filter (where is_landed), max(occurred_at)) as newest,
    coalesce(max(number), 0) as number
from read

-- name: new_rows
-- One row per row of `fetched` that is not in `landed`, as often as it is there more.
with before as (
    select {cells}
    from (from fetched where false union all by name from landed)
)
from fetched
except all
from before
where hash(before) in (select hash(fetched) from fetched)
order by all
