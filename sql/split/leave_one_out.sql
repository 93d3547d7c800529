-- One row per edge: one random edge of every user with at least two is held out, drawn by hash.
create or replace temp view leave_one_out_roles as
with held_out as (
    select
        user_index,
        arg_min(item_index, md5_number('{seed}:leave_one_out:' || user_id || ':' || item_id)) as item_index
    from curated.interactions
    group by user_index
    having count(*) >= 2
)
select
    edges.*,
    edges.item_index as item_column,
    case when held_out.user_index is null then 'train' else 'held_out' end as role
from curated.interactions as edges
left join held_out using (user_index, item_index)
