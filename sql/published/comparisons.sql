-- One row per protocol, metric and pair of ranked lists of the run.
select * exclude (run_id)
from evaluation.comparisons
where run_id = $run_id
order by all
