-- One row per edge of the train and test files that a data set comes with; an edge in both is for training. `place` counts
-- the training edges of a user, from 1, in the order of its lines and of the items within them (`in_line`, which only
-- adjacency logs have), or of their times; those of one time by hash.
create or replace temp table given_roles as
with files as (
    select
        user_index,
        item_index,
        bool_or(file_id in ({train_files})) as in_train
    from raw.events
    join indexed.users using (user_id)
    join indexed.items using (item_id)
    where file_id in ({train_files}) or file_id in ({test_files})
    group by user_index, item_index
), lines as (
    select
        user_index,
        item_index,
        min((file_id, line_number, place)) as in_line
    from raw.places
    join raw.events using (file_id, line_number, item_id)
    join indexed.users using (user_id)
    join indexed.items using (item_id)
    where file_id in ({train_files})
    group by user_index, item_index
)
select
    edges.user_index,
    edges.item_index,
    edges.item_index as item_column,
    event_count,
    case when in_train then 'train' else 'test' end as role,
    in_line is not null as has_place,
    first_at is not null as has_time,
    row_number() over (
        partition by edges.user_index, in_train
        order by in_line, first_at, md5_number(edges.user_index || ':' || edges.item_index)
    ) as place
from indexed.interactions as edges
join files using (user_index, item_index)
left join lines using (user_index, item_index)
