-- One row per rule that a stage of a run was checked against, broken ones first.
select
    contract,
    rule,
    severity,
    success,
    observed
from operations.contract_results
where run_id = $run_id and stage = $stage
order by success, contract, rule
