-- One row per model and protocol fitted in the newest completed run that fitted any, with the score that ranked
-- best in it (null where the protocol has no metrics).
with latest as (
    select run_id
    from operations.runs
    where state = 'completed' and exists (from operations.model_fits where model_fits.run_id = runs.run_id)
    order by started_at desc
    limit 1
), best as (
    select
        protocol,
        model,
        arg_max(score, value order by score) as score
    from evaluation.metrics
    semi join latest using (run_id)
    where metric = if(protocol = 'leave_one_out', 'mean_rank', 'ndcg@100')
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
