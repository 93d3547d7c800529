-- One row per edge of the train and test files that a data set comes with; an edge in both is for training.
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
)
select
    edges.user_index,
    edges.item_index,
    edges.item_index as item_column,
    event_count,
    case when in_train then 'train' else 'test' end as role
from indexed.interactions as edges
join files using (user_index, item_index)
