-- One row per {side} that has an edge, numbered from 0 in order of first appearance.
create or replace temp table {side}_indices as
with appearances as (
    select {side}_code as code, min(position) as position from edges group by {side}_code
)
select
    code,
    {side}_id,
    (row_number() over (order by position, {side}_id) - 1)::integer as {side}_index
from appearances
join {side}_codes using (code)
