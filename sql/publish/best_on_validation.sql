-- One row: the model and score of this run with the best value of a metric on the users of the validation part.
select
    model,
    score
from evaluation.metrics
where run_id = $run_id
  and metric = $metric
  and ($model is null or model = $model)
order by value desc, model, score
limit 1
