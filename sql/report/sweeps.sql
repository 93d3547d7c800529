-- One row per refit, score, side, bin of its training degrees and metric of each model's latest sweep.
select
    sweep,
    protocol,
    model,
    settings,
    score,
    if(degree_low is null, null, coalesce(side, 'user')) as side,
    degree_low,
    degree_high,
    metric,
    value,
    standard_error,
    users,
    seconds
from evaluation.sweeps
qualify swept_at = max(swept_at) over (partition by sweep, protocol, model, settings)
order by sweep, protocol, model, settings, score, metric, side, degree_low
