-- One row per model and bin of user training degrees of one run, of held-out items that were considered and not liked.
select
    model,
    degree_low,
    degree_high,
    edges,
    error,
    histogram
from evaluation.dislike_by_degree
where run_id = $run_id
order by model, degree_low
