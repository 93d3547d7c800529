-- One row per model that has settings to search: where those of the run come from, and what a search was worth.
select
    model,
    case origin
        when 'search' then 'searched in this run'
        when 'kept' then 'searched on ' || searched_on
        when 'data set' then 'the data set''s file'
        when 'given' then 'given'
        else 'defaults'
    end as origin,
    metric,
    at_start,
    reached,
    reached - at_start as gain,
    trials,
    reason
from operations.model_settings
where run_id = $run_id
order by origin, model
