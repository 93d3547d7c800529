-- One row per side, model, score and bin of training degrees of one run.
select
    side,
    model,
    score,
    degree_low,
    degree_high,
    edges,
    mean_rank,
    p05,
    p25,
    p50,
    p75,
    p95
from evaluation.ranks_by_degree
where run_id = $run_id
order by side desc, model, score, degree_low
