-- One row: the run, and what the warehouse holds of the log and of the observed graph.
select
    run.run_id,
    run.flow,
    run.started_at,
    run.code_version,
    (select count(*) from operations.log_files) as files,
    (select coalesce(sum(events), 0)::bigint from operations.log_files) as events,
    (select coalesce(sum(rejects), 0)::bigint from operations.log_files) as rejects,
    edges.edges,
    edges.users,
    edges.items,
    edges.first_at,
    edges.last_at
from operations.runs as run, (
    select
        count(*) as edges,
        (select count(*) from indexed.users) as users,
        (select count(*) from indexed.items) as items,
        min(first_at) as first_at,
        max(last_at) as last_at
    from indexed.interactions
) as edges
where run.run_id = $run_id
