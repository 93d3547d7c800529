-- One row per model and protocol fitted in a run.
select
    model,
    protocol,
    seconds,
    peak_bytes / 1e6 as peak_mb,
    saved_bytes / 1e6 as saved_mb
from operations.model_fits
where run_id = $run_id
order by protocol, model
