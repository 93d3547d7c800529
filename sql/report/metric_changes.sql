-- One row per protocol, model, score and main metric that this run or the previous one has. The standard error
-- of the change is that of two independent means; `beyond` says whether the change is more than twice that.
with main(protocol, metric) as (
    select unnest($protocols::varchar[]), unnest($metrics::varchar[])
), now as (
    select * from evaluation.metrics where run_id = $run_id
), before as (
    select * from evaluation.metrics where run_id = $previous_run_id
)
select
    protocol,
    model,
    score,
    metric,
    before.value as before,
    now.value as now,
    now.value - before.value as change,
    sqrt(now.standard_error ** 2 + before.standard_error ** 2) as standard_error,
    abs(now.value - before.value) > 2 * sqrt(now.standard_error ** 2 + before.standard_error ** 2) as beyond
from now
full join before using (protocol, model, score, metric)
join main using (protocol, metric)
order by protocol desc, metric, coalesce(now.value, 0) desc, model, score
