-- One row per model and protocol fitted in the last evaluated run, with the score that ranked best in it by the metric
-- that judges the protocol (null where the protocol has no metrics).
with main(protocol, metric, place) as (
    select unnest($protocols::varchar[]), unnest($metrics::varchar[]), unnest($places::integer[])
), latest as (
    select max_by(run_id, started_at) as run_id from operations.evaluated_runs
), best as (
    select
        protocol,
        model,
        arg_max(score, value order by score) as score
    from evaluation.metrics
    semi join latest using (run_id)
    join main using (protocol, metric)
    where place = 0
    group by protocol, model
)
select
    model,
    protocol,
    digest,
    score
from operations.model_fits
semi join latest using (run_id)
left join best using (protocol, model)
order by model, protocol
