-- One row: the model, among some, and the score of this run with the best value of a metric on the users of the validation part.
select
    model,
    score
from evaluation.metrics
where run_id = $run_id
  and metric = $metric
  and list_contains($models, model)
order by value desc, model, score
limit 1
