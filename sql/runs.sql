-- name: completed_since
-- One row: the newest run of a flow that began after a moment and was completed; no row if none was. A start in the
-- future is that of a clock that was ahead, and says nothing.
select run_id
from operations.runs
where state in ('completed', 'partly_failed')
  and flow = $flow
  and started_at > $moment
  and started_at <= $latest
order by started_at desc
limit 1

-- name: evaluated_settings
-- One row per evaluated run, the last first: its settings.
select settings
from operations.evaluated_runs
order by place desc
