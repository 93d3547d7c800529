-- name: latest_fit
-- One row: the fit of a model on a protocol by the last evaluated run that has one.
select digest
from operations.model_fits
join operations.evaluated_runs using (run_id)
where protocol = $protocol and model = $model
order by place desc
limit 1

-- name: retained_fits
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
