-- One row per edge of strong_generalization with its part and role, of the table's own types: text would be looked up row by row.
create or replace temp view roles as
select
    user_index,
    item_index,
    item_column,
    event_count,
    part,
    'fit'::enum('fit', 'fold_in', 'target', 'dropped') as role
from active_edges
join train_items using (item_index)
where part = 'train'
union all
select * from held_out_roles
