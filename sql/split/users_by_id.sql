-- One row per user that strong_generalization keeps, in the order of their ids.
select user_index
from indexed.users
semi join active_users using (user_index)
order by {id_order}
