-- One row: the model and score of this run with the best nDCG@100 on the users of the validation part.
select
    model,
    score
from evaluation.metrics
where run_id = $run_id
  and metric = 'validation_ndcg@100'
  and ($model is null or model = $model)
order by value desc, model, score
limit 1
