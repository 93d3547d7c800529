-- One row: how many edges, users and items the observed graph has.
select
    count(*) as edges,
    coalesce(max(user_index) + 1, 0) as users,
    coalesce(max(item_index) + 1, 0) as items
from curated.interactions
