-- One row per stage of a run: rules checked, and the names of those not met.
select
    stage,
    count(*) as rules,
    count(*) filter (where not success) as not_met,
    coalesce(string_agg(contract || ': ' || rule || ' (' || severity || ')', ', ' order by contract, rule)
        filter (where not success), '') as which
from operations.contract_results
where run_id = $run_id
group by stage
order by list_position(['ingest', 'binarize', 'split', 'diagnose', 'train', 'evaluate', 'publish'], stage)
