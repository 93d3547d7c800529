-- One row per rule that a run did not meet.
select distinct
    stage,
    contract,
    rule,
    severity,
    observed
from operations.contract_results
where run_id = $run_id and not success
order by severity, stage, contract, rule
