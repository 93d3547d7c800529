-- One row per item that a training user has, numbered in order of first appearance among them.
create or replace temp table train_items as
with appearances as (
    select item_index, min(position) as position
    from active_edges
    where part = 'train'
    group by item_index
)
select
    item_index,
    (row_number() over (order by position, item_index) - 1)::integer as item_column
from appearances
