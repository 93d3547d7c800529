-- One row per fit that one of the latest runs made or took from the store.
with latest as (
    select run_id from operations.runs order by started_at desc limit $runs
)
select distinct
    model,
    digest
from operations.model_fits
semi join latest using (run_id)
