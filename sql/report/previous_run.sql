-- One row at most: the latest completed run before this one.
select
    earlier.run_id,
    earlier.started_at,
    earlier.ended_at,
    earlier.code_version
from operations.runs as earlier, operations.runs as this
where this.run_id = $run_id
  and earlier.run_id <> $run_id
  and earlier.dataset = this.dataset
  and earlier.state = 'completed'
  and earlier.started_at < this.started_at
order by earlier.started_at desc
limit 1
