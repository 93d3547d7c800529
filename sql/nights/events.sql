-- night_events: one row per event that the night brought.
create or replace temp table night_events as
select
    user_id,
    item_id,
    value,
    occurred_at
from raw.events
join night_files using (file_id)
where line_number > lines_before
