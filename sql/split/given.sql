-- One row per edge of the train and test files that a data set comes with; an edge in both is for training.
create or replace temp view given_roles as
with files as (
    select user_id, item_id, bool_or(file_id in ({train_files})) as in_train
    from raw.events
    where file_id in ({train_files}) or file_id in ({test_files})
    group by user_id, item_id
)
select
    edges.*,
    edges.item_index as item_column,
    case when in_train then 'train' else 'test' end as role
from curated.interactions as edges
join files using (user_id, item_id)
