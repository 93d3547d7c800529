-- One row per {side} that has a like, numbered from 0 in order of first appearance: a code that is cheaper than its id.
create or replace temp table {side}_codes as
with likes as (
    select
        {side}_id,
        count(*) as events,
        min((file_id << 40) | line_number) as position
    from raw.events
    where value >= $threshold
      and ($since is null or occurred_at >= $since)
      and ($until is null or occurred_at::date <= $until)
    group by {side}_id
)
select
    {side}_id,
    events,
    (row_number() over (order by position, {side}_id) - 1)::integer as code
from likes
