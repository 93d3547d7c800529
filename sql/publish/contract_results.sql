-- One row per rule that a stage of a run was checked against, as it was last checked, broken ones first.
select
    success,
    contract,
    rule,
    severity,
    observed
from operations.contract_results
where run_id = $run_id and stage = $stage
qualify row_number() over (partition by contract, rule order by rowid desc) = 1
order by success, contract, rule
