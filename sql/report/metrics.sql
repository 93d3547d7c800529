-- One row per protocol, model, score and metric of one run.
select
    protocol,
    model,
    score,
    metric,
    value,
    standard_error,
    users
from evaluation.metrics
where run_id = $run_id
order by protocol, model, score, metric
