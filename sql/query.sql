-- name: newest
-- One row: the newest time of the events that the query gave, or of all if it gave none. A time later than its reading
-- does not say how far the logs were read.
with read as (
    select
        if(occurred_at <= ingested_at, occurred_at, null) as occurred_at,
        regexp_matches(path, '(^|/)source(-[0-9-]+)?\.parquet$') as is_landed
    from raw.events
    join operations.log_files using (file_id)
)
select if(bool_or(is_landed), max(occurred_at) filter (where is_landed), max(occurred_at))
from read
