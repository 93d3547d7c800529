-- One row per user with at least two edges: the random edge that is left out, drawn by hash.
create or replace temp table left_out as
with users as (
    select user_index, $seed || ':leave_one_out:' || user_id || ':' as drawn_by from indexed.users
)
select
    user_index,
    arg_min(item_index, md5_number(drawn_by || item_id)) as item_index
from indexed.interactions
join users using (user_index)
join indexed.items using (item_index)
group by user_index
having count(*) >= 2
