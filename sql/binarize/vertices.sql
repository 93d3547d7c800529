-- indexed.{side}s: one row per {side} of an edge: its index, which is the column {index} of {vertices}, and its id.
insert into indexed.{side}s
select
    {index} as {side}_index,
    {side}_id
from {vertices}
order by {index}
