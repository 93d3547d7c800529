-- numbered: one row per edge that is left, by index.
create or replace temp view numbered as
select
    user_index,
    item_index,
    event_count,
    first_at,
    last_at,
    position
from edges
join user_indices as users on users.code = edges.user_code
join item_indices as items on items.code = edges.item_code
