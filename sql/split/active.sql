-- active_items and active_users: one row per item, and per user, that strong_generalization keeps: its own one-pass filter,
-- items first, then users.
create or replace temp table active_items as
select item_index from indexed.interactions group by item_index having count(*) >= {min_item_edges};
create or replace temp table active_users as
select user_index
from indexed.interactions
semi join active_items using (item_index)
group by user_index
having count(*) >= {min_user_edges}
order by user_index
