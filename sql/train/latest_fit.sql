-- One row: the fit of a model on a protocol by the last evaluated run that has one.
select digest
from operations.model_fits
join operations.evaluated_runs using (run_id)
where protocol = $protocol and model = $model
order by place desc
limit 1
