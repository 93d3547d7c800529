-- One row per target: a fifth of the edges of each held-out user with at least five, drawn by hash.
create or replace temp table targets as
with candidates as (
    select
        user_index,
        item_index,
        row_number() over (
            partition by user_index order by md5_number($seed || ':target:' || user_id || ':' || item_id)
        ) as place,
        count(*) over (partition by user_index) as edges
    from active_edges
    join user_parts using (user_index)
    semi join train_items using (item_index)
    join indexed.users using (user_index)
    join indexed.items using (item_index)
    where part <> 'train'
)
select
    user_index,
    item_index
from candidates
where edges >= 5 and place <= edges // 5
