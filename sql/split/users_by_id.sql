-- One row per user that strong_generalization keeps, in the order of their ids.
select user_index
from (select distinct user_id, user_index from active_edges)
order by {id_order}
