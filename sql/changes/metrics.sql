-- One row per protocol, model, score and main metric that this run or the previous one has. The standard error
-- of the change is that of two independent means; a change is better or worse when it is more than twice that.
with main(protocol, metric, place) as (
    select unnest($protocols::varchar[]), unnest($metrics::varchar[]), unnest($places::integer[])
), now as (
    select * from evaluation.metrics where run_id = $run_id
), before as (
    select * from evaluation.metrics where run_id = $previous_run_id
), compared as (
    select
        protocol,
        model,
        score,
        metric,
        place,
        before.value as before,
        now.value as now,
        now.value - before.value as change,
        sqrt(now.standard_error ** 2 + before.standard_error ** 2) as standard_error
    from now
    full join before using (protocol, model, score, metric)
    join main using (protocol, metric)
)
select
    *,
    case
        when before is null then 'new'
        when now is null then 'gone'
        when change = 0 then 'the same'
        when standard_error is null then 'no standard error'
        when abs(change) <= 2 * standard_error then 'within the noise'
        when change > 0 then 'better'
        else 'worse'
    end as verdict
from compared
order by protocol desc, metric, coalesce(now, 0) desc, model, score
