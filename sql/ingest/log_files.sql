-- operations.log_files: one row per log file that was read in.
insert into operations.log_files
with logs as (
    select
        unnest($file_ids) as file_id, unnest($paths) as path,
        unnest($digests) as sha256, unnest($sizes) as bytes
),
events as (
    select file_id, count(*) as events
    from raw.events
    where file_id in $file_ids
    group by file_id
),
rejects as (
    select file_id, count(*) as rejects
    from raw.rejects
    where file_id in $file_ids
    group by file_id
)
select file_id, path, sha256, bytes, coalesce(events, 0), coalesce(rejects, 0), now() at time zone 'UTC'
from logs
left join events using (file_id)
left join rejects using (file_id)
order by file_id
