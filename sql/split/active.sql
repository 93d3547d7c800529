-- rare_items and active_users: one row per item that strong_generalization leaves out, and per user that it keeps: its own one-pass
-- filter, items first, then users. Rare items are mostly none, and to leave out none costs nothing.
create or replace temp table rare_items as
select item_index from indexed.interactions group by item_index having count(*) < {min_item_edges};
create or replace temp table active_users as
select user_index
from indexed.interactions
anti join rare_items using (item_index)
group by user_index
having count(*) >= {min_user_edges}
order by user_index
