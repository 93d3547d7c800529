-- One row per earlier evaluation that was made from the same, the newest first.
select
    evaluations.run_id,
    evaluations.rows,
    evaluations.result
from operations.evaluations
join operations.runs using (run_id)
where made_from = $made_from and protocol = $protocol and evaluations.run_id <> $run_id
order by started_at desc
