-- One row per protocol and ranked list other than the best by the metric that judges the protocol: the best list's
-- lead over it, user by user.
with main(protocol, metric, place) as (
    select unnest($protocols::varchar[]), unnest($metrics::varchar[]), unnest($places::integer[])
), best as (
    select protocol, metric, model, score
    from evaluation.metrics
    join main using (protocol, metric)
    where run_id = $run_id and place = 0
    qualify row_number() over (partition by protocol order by value desc, model, score) = 1
), paired as (
    select c.*, (c.model, c.score) = (best.model, best.score) as first_is_best
    from evaluation.comparisons as c
    join best on c.protocol = best.protocol
        and c.metric = best.metric
        and ((c.model, c.score) = (best.model, best.score) or (c.other_model, c.other_score) = (best.model, best.score))
    where c.run_id = $run_id
)
select
    protocol,
    metric,
    case when first_is_best then other_model else model end as model,
    case when first_is_best then other_score else score end as score,
    case when first_is_best then difference else -difference end as lead,
    standard_error,
    p_value,
    users
from paired
order by protocol, lead, model, score
