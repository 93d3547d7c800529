-- One row per edge of a held-out user with its part and role.
create or replace temp table held_out_roles as
select
    edges.user_index,
    edges.item_index,
    item_column,
    event_count,
    part,
    (case
        when item_column is null then 'dropped'
        when targets.item_index is not null then 'target'
        else 'fold_in'
    end)::enum('fit', 'fold_in', 'target', 'dropped') as role
from held_out_edges as edges
left join targets using (user_index, item_index)
