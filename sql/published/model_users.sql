-- One row per user who likes anything, by index: the rows of the matrix of every edge.
select any_value(user_id) as user_id
from curated.interactions
group by user_index
order by user_index
