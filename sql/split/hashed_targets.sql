-- One row per target: a fifth of the edges of each held-out user with at least five, drawn by hash; and, where most of those
-- with two or more have fewer than five, one edge of each of these.
create or replace temp table targets as
with candidates as (
    select
        user_index,
        item_index,
        row_number() over (
            partition by user_index order by md5_number($seed || ':target:' || user_id || ':' || item_id)
        ) as place,
        count(*) over (partition by user_index) as edges
    from held_out_edges
    join indexed.users using (user_index)
    join indexed.items using (item_index)
    where item_column is not null
), short as (
    select count(*) filter (edges < 5) > count(*) filter (edges >= 5) as histories
    from candidates
    where place = 1 and edges >= 2
)
select
    user_index,
    item_index
from candidates
cross join short
where place <= case when edges >= 5 then edges // 5 when edges >= 2 and short.histories then 1 else 0 end
