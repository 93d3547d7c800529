-- One row per model and score of a protocol that is not significantly worse than the best by this metric
-- (paired over users, two-sided, at 5 %), the best itself among them.
with best as (
    select model, score
    from evaluation.metrics
    where run_id = $run_id and protocol = $protocol and metric = $metric
    order by value desc, model, score
    limit 1
), level_by_test as (
    select
        case when (c.model, c.score) = (best.model, best.score) then c.other_model else c.model end as model,
        case when (c.model, c.score) = (best.model, best.score) then c.other_score else c.score end as score
    from evaluation.comparisons as c, best
    where c.run_id = $run_id
      and c.protocol = $protocol
      and c.metric = $metric
      and c.p_value >= 0.05
      and ((c.model, c.score) = (best.model, best.score) or (c.other_model, c.other_score) = (best.model, best.score))
)
select model, score, true as is_best from best
union all
select model, score, false as is_best from level_by_test
