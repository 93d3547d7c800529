-- operations.evaluated_runs: one row per completed run that evaluated anything. Whatever asks for the last run, or the
-- one before this, asks here: a tune, a sweep or a run that failed has no evaluation that another can be held against.
create or replace view operations.evaluated_runs as
select *
from operations.runs
where state = 'completed' and exists (from evaluation.metrics where metrics.run_id = runs.run_id)
