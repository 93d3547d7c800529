-- One row: the newest run of a flow that began after a moment and was completed; none where there is none.
select run_id
from operations.runs
where state in ('completed', 'partly_failed') and flow = $flow and started_at > $moment
order by started_at desc
limit 1
