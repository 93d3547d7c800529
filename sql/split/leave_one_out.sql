-- One row per edge with its role: that of `left_out` is held out, the others train.
create or replace temp table leave_one_out_roles as
select
    edges.user_index,
    edges.item_index,
    edges.item_index as item_column,
    event_count,
    case when left_out.user_index is null then 'train' else 'held_out' end as role
from indexed.interactions as edges
left join left_out using (user_index, item_index)
