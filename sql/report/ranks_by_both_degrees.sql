-- One row per model, score and pair of bins of training degrees, the user's and the item's, of one run.
select
    model,
    score,
    user_degree_low,
    item_degree_low,
    edges,
    mean_rank
from evaluation.ranks_by_both_degrees
where run_id = $run_id
order by model, score, user_degree_low, item_degree_low
