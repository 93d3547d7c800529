-- One row per fit that one of the latest runs made or took from the store; the latest are those recorded last, for a
-- clock may be set back.
with latest as (
    select run_id from operations.runs order by rowid desc limit $runs
)
select distinct
    model,
    digest
from operations.model_fits
semi join latest using (run_id)
