-- One row per rule that a run did not meet, with some of the rows that break it as JSON.
select
    stage,
    contract,
    rule,
    severity,
    any_value(observed) as observed,
    coalesce(any_value(samples)::varchar, '[]') as samples
from operations.contract_results
where run_id = $run_id and not success
group by stage, contract, rule, severity
order by severity, stage, contract, rule
