-- evaluation_of_run: one row per protocol, model, score and metric of one run, as the files have them.
create or replace temp table evaluation_of_run as
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
