-- One row per edge of strong_generalization with its part and role.
create or replace temp view roles as
select
    active_edges.*,
    part,
    case
        when part = 'train' then 'fit'
        when item_column is null then 'dropped'
        when targets.item_index is not null then 'target'
        else 'fold_in'
    end as role,
    item_column
from active_edges
join user_parts using (user_index)
left join train_items using (item_index)
left join targets using (user_index, item_index)
