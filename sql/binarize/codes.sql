-- One row per {side} that has a like, with a number to group by that is cheaper than its id.
create or replace temp table {side}_codes as
select
    {side}_id,
    row_number() over () - 1 as code
from (select distinct {side}_id from liked_events)
