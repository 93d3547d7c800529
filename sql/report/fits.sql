-- One row per model and protocol fitted in a run.
select
    model,
    protocol,
    seconds,
    peak_bytes,
    saved_bytes
from operations.model_fits
where run_id = $run_id
order by protocol, model
