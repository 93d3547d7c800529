-- indexed.interactions: one row per edge, by index, with the place in the logs where it first appeared.
insert into indexed.interactions
select
    user_index,
    item_index,
    event_count,
    first_at,
    last_at,
    position >> 40 as first_file_id,
    position & 1099511627775 as first_line
from edges
join user_indices as users on users.code = edges.user_code
join item_indices as items on items.code = edges.item_code
