-- indexed.{side}s: one row per {side} of an edge: its index and its id.
insert into indexed.{side}s
select
    {side}_index,
    {side}_id
from {side}_indices
order by {side}_index
