-- name: facts
-- One row: what this run was, and what it read, checked and fitted.
with this as (
    select * from operations.runs where run_id = $run_id
), logs as (
    select
        count(*) as log_files,
        count(*) filter (where ingested_at >= (select started_at from this)) as new_log_files,
        coalesce(sum(events), 0)::bigint as events,
        coalesce(sum(events) filter (where ingested_at >= (select started_at from this)), 0)::bigint as new_events,
        coalesce(sum(rejects), 0)::bigint as rejects
    from operations.log_files
), arrived as (
    select
        count(*) filter (where outcome in ('changed', 'withdrawn')) as changed_files,
        coalesce(sum(events_before), 0)::bigint as events_before,
        coalesce(sum(events) filter (where outcome = 'changed'), 0)::bigint as events_instead,
        count(*) filter (where outcome = 'set aside') as files_set_aside,
        string_agg(name || ' (' || split_part(reason, chr(10), 1) || ')', '; ' order by name)
            filter (where outcome = 'set aside') as set_aside,
        string_agg(name, '; ' order by name) filter (where outcome = 'unmatched') as unmatched
    from operations.arrivals
    where run_id = $run_id
), graph as (
    select
        (select count(*) from indexed.interactions) as edges,
        (select count(*) from indexed.users) as users,
        (select count(*) from indexed.items) as items
), checks as (
    select
        count(*) as rules,
        count(*) filter (where not success) as not_met
    from operations.contract_results
    where run_id = $run_id
), fits as (
    select
        count(*) as fits,
        coalesce(sum(seconds), 0) as fit_seconds
    from operations.model_fits
    where run_id = $run_id
)
select
    this.flow,
    this.started_at,
    this.code_version,
    this.settings,
    this.settings ->> 'seen_items' as seen_items,
    (select result -> 'seen_items' ->> 'reason' from operations.stage_results where stage = 'split') as seen_items_reason,
    logs.*,
    arrived.*,
    graph.*,
    checks.*,
    fits.*
from this, logs, arrived, graph, checks, fits
