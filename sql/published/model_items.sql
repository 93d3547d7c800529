-- One row per item that is liked, by index: the columns of the matrix of every edge; its title where a table has one,
-- and how many users like it.
with liked as (
    select
        item_index,
        any_value(item_id) as item_id,
        count(*) as users
    from curated.interactions
    group by item_index
)
select
    item_id,
    title,
    users::integer as users
from liked
left join item_titles using (item_id)
order by item_index
