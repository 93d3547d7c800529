-- One row: a run's settings, and the score of one of its models with the best value of a metric; nulls where it has none.
with best as (
    select *
    from evaluation.metrics
    where run_id = $run_id and model = $model and metric = $metric
    order by value desc, score
    limit 1
)
select
    settings,
    score,
    value,
    standard_error,
    users
from operations.runs
left join best using (run_id)
where run_id = $run_id
