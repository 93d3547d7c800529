-- One row per fit that is kept: of the latest runs that were evaluated, and of the run that is going on. The latest are
-- those recorded last, for a clock may be set back.
with latest as (
    select run_id
    from operations.runs
    semi join operations.evaluated_runs using (run_id)
    order by runs.rowid desc
    limit $runs
), kept as (
    from latest
    union
    select run_id from operations.runs where state = 'running'
)
select distinct
    model,
    digest
from operations.model_fits
semi join kept using (run_id)
