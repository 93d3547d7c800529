-- One row per protocol and model of one run that held-out considered pairs were judged by, its metrics side by side.
select
    protocol,
    model,
    max(value) filter (metric = 'considered_auc') as auc,
    max(standard_error) filter (metric = 'considered_auc') as auc_error,
    max(value) filter (metric = 'considered_log_loss') as log_loss,
    max(standard_error) filter (metric = 'considered_log_loss') as log_loss_error,
    max(value) filter (metric = 'considered_calibration_error') as calibration_error,
    max(value) filter (metric = 'considered_coin_error') as coin_error,
    any_value(likes) as likes,
    any_value(dislikes) as dislikes
from evaluation.considered
where run_id = $run_id
group by protocol, model
order by protocol, auc desc
