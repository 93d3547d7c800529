-- One row per figure of a night that was warned of: the rule that it broke, and the range that would not have.
with broken as (
    select
        contract,
        rule,
        unnest(from_json(
            samples, '[{"figure": "VARCHAR", "value": "DOUBLE", "usual_from": "DOUBLE", "usual_to": "DOUBLE"}]'
        )) as breach
    from operations.contract_results
    where run_id = $run_id and not success and rule not in ('columns', 'figure_once')
        and contract in ('operations.nights', 'diagnostics.nightly_exponents')
)
select distinct
    contract,
    rule,
    breach.figure as figure,
    breach.value as value,
    breach.usual_from as usual_from,
    breach.usual_to as usual_to
from broken
order by contract, rule, figure
