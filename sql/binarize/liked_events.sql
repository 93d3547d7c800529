-- One row per event that counts as a like, with its place in file order packed into one integer.
create or replace temp table liked_events as
select
    user_id,
    item_id,
    occurred_at,
    (file_id << 40) | line_number as position
from raw.events
where value >= $threshold
  and ($since is null or occurred_at >= $since)
  and ($until is null or occurred_at::date <= $until)
