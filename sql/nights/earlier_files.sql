-- earlier_files: one row per log of the last complete nights, of $nights at the most. A night that brought over ten
-- times as much as the small ones of them, such as all years' log on the first, says little of tonight and takes long
-- to read.
create or replace temp table earlier_files as
with nights as (
    select night, value as events
    from operations.complete_nights
    join operations.nights using (night, run_id)
    where night < $night and figure = 'events' and value > 0
    order by night desc
    limit $nights
), alike as (
    select night from nights where events <= 10 * (select quantile_disc(events, 0.25) from nights)
)
select distinct file_id
from operations.arrivals
where outcome in ('new', 'changed') and run_id in (select run_id from operations.nights where night in (from alike))
