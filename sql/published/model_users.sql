-- One row per user who likes anything, by index: the rows of the matrix of every edge.
select user_id
from indexed.users
order by user_index
