-- operations.evaluated_runs: one row per run that evaluated anything and came to its end, also if some model failed in it. Whatever asks for the last run, or the
-- one before this, asks here: a tune, a sweep or a run that failed has no evaluation that another can be held against.
-- `place` is the order in which runs were recorded, which a clock that was set back leaves as it is.
create or replace view operations.evaluated_runs as
select
    rowid as place,
    *
from operations.runs
where state in ('completed', 'partly_failed') and exists (from evaluation.metrics where metrics.run_id = runs.run_id)
