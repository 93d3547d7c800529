-- One row per edge with its role: that of `left_out` is held out, the others train.
create or replace temp view leave_one_out_roles as
select
    edges.user_index,
    edges.item_index,
    edges.item_index as item_column,
    event_count,
    case
        when edges.item_index = left_out.item_index then 'held_out'::enum('train', 'held_out')
        else 'train'::enum('train', 'held_out')
    end as role
from indexed.interactions as edges
left join left_out using (user_index)
