-- One row per protocol, model, score and main metric of one run: protocols in their order, the best list first,
-- then its metrics in their order. `standing` is `best`, `level` (not significantly worse than the best: paired over
-- users, two-sided, at 5 %), or empty.
with main(protocol, metric, place) as (
    select unnest($protocols::varchar[]), unnest($metrics::varchar[]), unnest($places::integer[])
), found as (
    select protocol, metric, model, score, value, standard_error, users, place
    from evaluation.metrics
    join main using (protocol, metric)
    where run_id = $run_id
), judged as (
    select
        protocol,
        metric,
        model,
        score,
        row_number() over (partition by protocol order by value desc, model, score) as list_place
    from found
    where place = 0
), pairs as (
    select protocol, metric, model, score, other_model, other_score, p_value
    from evaluation.comparisons
    where run_id = $run_id
    union all
    select protocol, metric, other_model, other_score, model, score, p_value
    from evaluation.comparisons
    where run_id = $run_id
), level_with_best as (
    select distinct pairs.protocol, pairs.other_model as model, pairs.other_score as score
    from pairs
    join judged using (protocol, metric, model, score)
    where list_place = 1 and p_value >= 0.05
)
select
    protocol,
    model,
    score,
    users,
    case when list_place = 1 then 'best' when level_with_best.model is not null then 'level' else '' end as standing,
    found.metric,
    value,
    standard_error
from found
join judged using (protocol, model, score)
left join level_with_best using (protocol, model, score)
order by list_position($protocols, protocol), list_place, place
