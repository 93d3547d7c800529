-- One row per user that strong_generalization keeps, in the order of their ids.
select user_index
from indexed.users
semi join (select distinct user_index from active_edges) using (user_index)
order by {id_order}
