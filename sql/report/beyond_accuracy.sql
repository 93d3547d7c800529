-- One row per protocol, model, score and metric of the first recommendations to the test users of one run.
select
    protocol,
    model,
    score,
    metric,
    value,
    standard_error,
    users
from evaluation.beyond_accuracy
where run_id = $run_id
order by protocol, model, score, metric
