-- One row per edge that strong_generalization keeps: its own one-pass filter, items first, then users.
create or replace temp table active_edges as
with popular as (
    select item_index from indexed.interactions group by item_index having count(*) >= {min_item_edges}
), of_popular_items as (
    select * from indexed.interactions semi join popular using (item_index)
), active as (
    select user_index from of_popular_items group by user_index having count(*) >= {min_user_edges}
)
select
    user_index,
    item_index,
    event_count,
    (first_file_id << 40) | first_line as position
from of_popular_items
semi join active using (user_index)
