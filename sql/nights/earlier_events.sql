-- earlier_events: one row per event of the last complete nights.
create or replace temp table earlier_events as
select
    user_id,
    item_id,
    value,
    occurred_at
from raw.events
left join night_files using (file_id)
where file_id in (from earlier_files) and coalesce(line_number <= lines_before, true)
