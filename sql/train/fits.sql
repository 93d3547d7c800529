-- One row: the fit of one model on one protocol's training edges in this run.
insert into operations.model_fits
values ($run_id, $protocol, $model, $digest, $seconds, $peak_bytes, $saved_bytes)
