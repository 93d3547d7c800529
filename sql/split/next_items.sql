-- One row per item that has an edge before the cut, in the order of its column.
select distinct
    item_index,
    item_column
from next_events_roles
where role = 'train'
order by item_column
