-- One row: a digest of the logs whose events the warehouse holds, which a log that is read in again changes too.
select
    md5(
        string_agg(concat_ws(' ', file_id, sha256, events, rejects, ingested_at), ',' order by file_id)
        || ' ' || (select count(*) from raw.events)
    ) as digest
from operations.log_files
