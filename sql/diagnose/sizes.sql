-- One row: users, items and edges of the observed graph.
select count(distinct user_index) as users, count(distinct item_index) as items, count(*) as edges
from indexed.interactions
