-- One row: a run's settings, those that a search before the fits settled for one of its models (null where there are
-- none), and the score of this model with the best value of a metric; nulls where it has none.
with best as (
    select *
    from evaluation.metrics
    where run_id = $run_id and model = $model and metric = $metric
    order by value desc, score
    limit 1
)
select
    runs.settings,
    settled.settings as settled,
    best.score,
    best.value,
    best.standard_error,
    best.users
from operations.runs as runs
left join best using (run_id)
left join operations.model_settings as settled on settled.run_id = runs.run_id and settled.model = $model
where runs.run_id = $run_id
