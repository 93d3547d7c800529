-- One row per setting, by its dotted name, that differs between two runs; NULL where a run does not have it.
with leaves as (
    select
        run_id,
        replace(substr(tree.fullkey, 3), '"', '') as setting,
        tree.value::varchar as value
    from operations.runs, json_tree(settings) as tree
    where run_id in ($run_id, $previous_run_id)
      and tree.type not in ('OBJECT', 'ARRAY')
    union all
    select
        run_id,
        'searched.' || model || '.' || replace(substr(tree.fullkey, 3), '"', '') as setting,
        tree.value::varchar as value
    from operations.model_settings, json_tree(settings) as tree
    where run_id in ($run_id, $previous_run_id)
      and origin in ('search', 'kept')
      and tree.type not in ('OBJECT', 'ARRAY')
), of_runs as (
    select
        setting,
        any_value(value) filter (where run_id = $previous_run_id) as before,
        any_value(value) filter (where run_id = $run_id) as now
    from leaves
    group by setting
)
select setting, before, now
from of_runs
where before is distinct from now
order by setting
