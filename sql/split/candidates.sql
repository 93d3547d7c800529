-- One row per edge of a held-out user to an item that training users have: users in the order of their ids,
-- each user's edges in file order.
select
    user_index,
    item_index,
    part = 'validation' as in_validation
from held_out_edges
join indexed.users using (user_index)
join indexed.items using (item_index)
where item_column is not null
order by part, {id_order}, position, item_id
