-- One row per rule that one of two runs met and the other did not.
with of_runs as (
    select
        contract,
        rule,
        bool_and(success) filter (where run_id = $run_id) as now,
        bool_and(success) filter (where run_id = $previous_run_id) as before
    from operations.contract_results
    where run_id in ($run_id, $previous_run_id)
    group by contract, rule
)
select
    contract,
    rule,
    case when now then 'met again' else 'no longer met' end as change
from of_runs
where now <> before
order by change, contract, rule
