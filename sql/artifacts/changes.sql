-- One row per protocol, model, score and metric of this run, of the run before, or of both: its two values.
with now as (
    select * from evaluation.metrics where run_id = $run_id
), before as (
    select * from evaluation.metrics where run_id = $before_run_id
)
select
    protocol,
    model,
    score,
    metric,
    now.value,
    before.value as before_value
from now
full join before using (protocol, model, score, metric)
order by protocol, metric, now.value desc nulls last, model, score
