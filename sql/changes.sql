-- name: previous_run
-- One row at most: the last evaluated run of the data set before this one.
select
    earlier.run_id,
    earlier.started_at,
    earlier.code_version
from operations.evaluated_runs as earlier
join operations.runs as this using (dataset)
where this.run_id = $run_id and earlier.place < this.rowid
order by earlier.place desc
limit 1

-- name: metrics
-- One row per protocol, model, score and main metric that this run or the previous one has. The standard error
-- of the change is that of two independent means; a change is better or worse when it is more than twice that.
with main(protocol, metric, place) as (
    select unnest($protocols::varchar[]), unnest($metrics::varchar[]), unnest($places::integer[])
), now as (
    select * from evaluation.metrics where run_id = $run_id
), before as (
    select * from evaluation.metrics where run_id = $previous_run_id
), compared as (
    select
        protocol,
        model,
        score,
        metric,
        place,
        before.value as before,
        now.value as now,
        now.value - before.value as change,
        sqrt(now.standard_error ** 2 + before.standard_error ** 2) as standard_error
    from now
    full join before using (protocol, model, score, metric)
    join main using (protocol, metric)
)
select
    *,
    case
        when before is null then 'new'
        when now is null then 'gone'
        when change = 0 then 'the same'
        when standard_error is null then 'no standard error'
        when abs(change) <= 2 * standard_error then 'within the noise'
        when change > 0 then 'better'
        else 'worse'
    end as verdict
from compared
order by protocol desc, metric, coalesce(now, 0) desc, model, score

-- name: settings
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
