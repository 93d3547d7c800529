-- One row per model, reference and bin of the like probability of one run.
select
    model,
    reference,
    pairs,
    mean_like,
    observed,
    standard_error
from evaluation.calibration
where run_id = $run_id
order by model, reference, like_low
