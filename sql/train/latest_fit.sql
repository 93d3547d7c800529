-- One row: the newest fit of a model on a protocol by a run that came to its end.
select digest
from operations.model_fits
join operations.runs using (run_id)
where protocol = $protocol and model = $model and state = 'completed'
order by started_at desc
limit 1
