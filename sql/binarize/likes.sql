-- One row per event that counts as a like, of the users with the codes from $first on and below $end: its user's code, from 0,
-- its item's code, its time in microseconds, $never where it has none, and its place in file order packed into one integer.
select
    users.code - $first as user_code,
    items.code as item_code,
    coalesce(epoch_us(occurred_at), $never::bigint) as time,
    (file_id << 40) | line_number as position
from raw.events
join user_codes as users using (user_id)
join item_codes as items using (item_id)
where value >= $threshold
  and ($since is null or occurred_at >= $since)
  and ($until is null or occurred_at::date <= $until)
  and users.code >= $first
  and users.code < $end
