-- One row: the edges of the observed graph, and its users.
select
    count(*) as edges,
    count(distinct user_index) as users
from indexed.interactions
