-- One row per item that is liked, by index: the columns of the matrix of every edge; its title where a table has one,
-- and how many users like it.
select
    item_id,
    title,
    users::integer as users
from indexed.items
join (select item_index, count(*) as users from indexed.interactions group by item_index) using (item_index)
left join item_titles using (item_id)
order by item_index
