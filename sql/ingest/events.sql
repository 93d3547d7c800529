-- raw.events: one row per line (per item of an adjacency line) that could be read.
insert into raw.events
select user_id, item_id, value, occurred_at, file_id, line_number
from ({parsed}) as parsed
where reason is null
