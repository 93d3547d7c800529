-- One row per user and item that they like, by user: when it was first seen.
select
    user_index,
    item_index,
    first_at
from indexed.interactions
order by user_index, item_index
