-- One row per run of the latest ones, whatever came of it; the latest first.
select run_id, state
from operations.runs
order by started_at desc
limit $runs
