-- One row per edge of a held-out user to an item that training users have: users in the order of their ids,
-- each user's edges in file order. Ids are compared once each, and then their places.
with users as (
    select
        user_index,
        part = 'validation' as in_validation,
        (row_number() over (order by part, {id_order}))::integer as place
    from user_parts
    join indexed.users using (user_index)
    where part <> 'train'
), items as (
    select item_index, (row_number() over (order by item_id))::integer as place from indexed.items
)
select
    user_index,
    item_index,
    in_validation
from held_out_edges
join users using (user_index)
join items using (item_index)
where item_column is not null
order by users.place, position, items.place
