-- One row per edge: that of `left_out` is held out, the others train.
create or replace temp view leave_one_out_roles as
select
    edges.*,
    edges.item_index as item_column,
    case when left_out.user_index is null then 'train' else 'held_out' end as role
from curated.interactions as edges
left join left_out using (user_index, item_index)
