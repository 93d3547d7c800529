-- One row per stage and contract checked in a run: its rules, and how many were not met.
select
    stage,
    contract,
    count(*) as rules,
    count(*) filter (where not success and severity = 'error') as broken,
    count(*) filter (where not success and severity <> 'error') as warnings
from operations.contract_results
where run_id = $run_id
group by stage, contract
order by list_position($stages, stage), contract
