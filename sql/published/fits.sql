-- One row per model and protocol fitted in a run (or in the one whose evaluation it publishes), with the score that ranked best in it by the metric that judges the
-- protocol (null where the protocol has no metrics).
with main(protocol, metric, place) as (
    select unnest($protocols::varchar[]), unnest($metrics::varchar[]), unnest($places::integer[])
), best as (
    select
        protocol,
        model,
        arg_max(score, value order by score) as score
    from evaluation.metrics
    join main using (protocol, metric)
    where place = 0 and run_id = $evaluated
    group by protocol, model
)
select distinct
    model,
    protocol,
    digest,
    score
from operations.model_fits
left join best using (protocol, model)
where run_id in ($run_id, $evaluated)
order by model, protocol
