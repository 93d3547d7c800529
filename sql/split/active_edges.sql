-- One row per edge that strong_generalization keeps, with the part of its user.
create or replace temp view active_edges as
select
    user_index,
    item_index,
    event_count,
    (first_file_id << 40) | first_line as position,
    part
from indexed.interactions
join user_parts using (user_index)
anti join rare_items using (item_index)
