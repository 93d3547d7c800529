-- name: users
-- One row per user of the logs: their index (null where nothing of theirs counts as a like), and how many events of
-- theirs are in the logs.
with seen as (
    select
        user_id,
        count(*) as events
    from raw.events
    group by user_id
)
select
    user_id,
    user_index,
    events
from seen
left join indexed.users using (user_id)
order by user_index nulls last, user_id

-- name: items
-- One row per item that is liked: its index, its id, and how many users like it.
select
    item_index,
    item_id,
    users
from curated.items
where users > 0
order by item_index

-- name: histories
-- One row per user and item that they like, by user: when it was first seen.
select
    user_index,
    item_index,
    first_at
from indexed.interactions
order by user_index, item_index

-- name: model_items
-- One row per item that is liked or new, by index: the columns of the matrix of every edge; its title where a table has one,
-- and how many users like it.
select
    item_id,
    title,
    users::integer as users
from curated.items
left join item_titles using (item_id)
order by item_index

-- name: named_lists
-- One row per row of `{lists}`, as it is, with the title of the item and those of the items that explain it; null where an
-- item has none.
with reasons as (
    select
        rowid as place_of_row,
        unnest(because) as because_id,
        generate_subscripts(because, 1) as place
    from {lists}
), named as (
    select
        place_of_row,
        list(title order by place) as because_titles
    from reasons
    left join item_titles on item_id = because_id
    group by place_of_row
)
select
    lists.*,
    title,
    because_titles
from {lists} as lists
left join item_titles using (item_id)
left join named on lists.rowid = place_of_row
order by {order}
