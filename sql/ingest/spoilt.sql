-- ingest_spoilt: one row per line of a batch that is part of a quoted field of several lines. A field of more than a
-- hundred lines is none: a quote stands there by mistake, and spoils its own line alone.
create or replace temp table ingest_spoilt as
with neighbours as (
    select
        file_id, line_number, begins,
        lead(line_number) over next_one as following,
        lead(ends) over next_one as following_ends
    from ingest_unpaired
    window next_one as (partition by file_id order by line_number)
)
select distinct file_id, unnest(range(line_number, following + 1)) as line_number
from neighbours
where begins and following_ends and following - line_number <= 100
