-- One row per edge of strong_generalization with its part and role.
create or replace temp table roles as
select
    active_edges.user_index,
    active_edges.item_index,
    item_column,
    event_count,
    part,
    case
        when part = 'train' then 'fit'
        when item_column is null then 'dropped'
        when targets.item_index is not null then 'target'
        else 'fold_in'
    end as role
from active_edges
join user_parts using (user_index)
left join train_items using (item_index)
left join targets using (user_index, item_index)
