-- One row: the newest completed run that evaluated anything.
select run_id
from operations.runs
where state = 'completed' and exists (from evaluation.metrics where metrics.run_id = runs.run_id)
order by started_at desc
limit 1
