-- name: overview
-- One row: the run, what arrived since the last evaluated run before it, and what the warehouse holds of the log and of
-- the observed graph.
with before as (
    select max(place) as place
    from operations.evaluated_runs
    where place < (select rowid from operations.runs where run_id = $run_id)
)
select
    run.run_id,
    run.flow,
    run.started_at,
    run.code_version,
    run.settings ->> 'seen_items' as seen_items,
    run.settings ->> 'left_out' as left_out,
    (select result -> 'seen_items' ->> 'reason' from operations.stage_results where stage = 'split') as seen_items_reason,
    (select count(*) from operations.log_files) as files,
    (select coalesce(sum(events), 0)::bigint from operations.log_files) as events,
    (select coalesce(sum(rejects), 0)::bigint from operations.log_files) as rejects,
    arrived.*,
    edges.*
from operations.runs as run, (
    select
        count(*) as likes,
        (select count(*) from indexed.users) as users,
        (select count(*) from indexed.items) as items,
        min(first_at) as first_at,
        max(last_at) as last_at
    from indexed.interactions
) as edges, (
    select
        coalesce(sum(greatest(0, events - events_before)), 0)::bigint as new_events,
        count(distinct name) as new_files,
        count(distinct name) filter (outcome = 'changed') as changed_files
    from operations.arrivals
    join operations.runs as runs using (run_id)
    where outcome in ('new', 'changed')
        and runs.rowid <= (select rowid from operations.runs where run_id = $run_id)
        and runs.rowid > coalesce((select place from before), -1)
) as arrived
where run.run_id = $run_id

-- name: log_files
-- One row per log file that was ingested, newest first.
select
    parse_filename(path) as file,
    events,
    rejects,
    bytes,
    left(sha256, 12) as sha256,
    ingested_at
from operations.log_files
order by file_id desc

-- name: reject_reasons
-- One row per reason why lines of a log file could not be read: how many, and the first of them.
select
    parse_filename(log_files.path) as file,
    rejects.reason,
    count(*) as lines,
    min(rejects.line_number) as first_line
from raw.rejects as rejects
join operations.log_files as log_files using (file_id)
group by file_id, log_files.path, rejects.reason
order by lines desc, file, reason
limit 20

-- name: events_by_night
-- One row per night of the last 30 up to a run's, oldest first: the events that the landing folder brought, and how many
-- are usual.
with last as (
    select max(night) as night from operations.nights where run_id = $run_id
), brought as (
    select
        night,
        value,
        usual
    from operations.nights as nights
    where figure = 'events'
        and value is not null
        and (nights.run_id = $run_id
            or run_id in (from (select run_id from operations.complete_nights) where night < (select night from last)))
    order by night desc
    limit 30
)
from brought
order by night

-- name: contracts
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

-- name: broken_rules
-- One row per rule that a run did not meet, with some of the rows that break it as JSON.
select
    stage,
    contract,
    rule,
    severity,
    any_value(observed) as observed,
    coalesce(any_value(samples)::varchar, '[]') as samples
from operations.contract_results
where run_id = $run_id and not success
group by stage, contract, rule, severity
order by severity, stage, contract, rule

-- name: quality
-- One row per night of the last 30 up to a run's, oldest first: a metric of the list that stood as published after its
-- last run, null where that run did not evaluate it; of the best list where nothing was decided about publishing. The
-- night of a run that took the events up to a day is that day, so that history which is replayed is a line too.
with runs as (
    select
        run_id,
        coalesce(try_cast(settings ->> 'until' as date), started_at::date) as night
    from operations.runs
    where run_id = $run_id -- which is still running as its report is written
        or rowid < (select rowid from operations.runs where run_id = $run_id)
        and run_id in (select run_id from operations.evaluated_runs)
    qualify row_number() over (partition by night order by runs.rowid desc) = 1
), stood as (
    select
        run_id,
        case when promoted then challenger else champion end as list
    from operations.promotions
), lists as (
    select
        run_id,
        night,
        model || '/' || score as list,
        value,
        standard_error
    from evaluation.metrics
    join runs using (run_id)
    where protocol = $protocol and metric = $metric
), nights as (
    select
        night,
        coalesce(stood.list, lists.list) as list,
        case when coalesce(stood.list = lists.list, true) then value end as value,
        case when coalesce(stood.list = lists.list, true) then standard_error end as standard_error
    from lists
    left join stood using (run_id)
    where night <= (select night from runs where run_id = $run_id)
    qualify row_number() over (
        partition by night order by (lists.list = stood.list) desc nulls last, lists.value desc, lists.list
    ) = 1
    order by night desc
    limit 30
)
from nights
order by night

-- name: considered
-- One row per protocol and model of one run that held-out considered pairs were judged by, its metrics side by side.
select
    protocol,
    model,
    max(value) filter (metric = 'considered_auc') as auc,
    max(standard_error) filter (metric = 'considered_auc') as auc_error,
    max(value) filter (metric = 'considered_log_loss') as log_loss,
    max(standard_error) filter (metric = 'considered_log_loss') as log_loss_error,
    max(value) filter (metric = 'considered_calibration_error') as calibration_error,
    any_value(likes) as likes,
    any_value(dislikes) as dislikes
from evaluation.considered
where run_id = $run_id
group by protocol, model
order by protocol, auc desc

-- name: costs
-- One row per model and protocol fitted in a run, the fits of all folds together.
select
    model,
    split_part(protocol, '_fold_', 1) as protocol,
    sum(seconds) as seconds,
    max(peak_bytes) as peak_bytes,
    sum(saved_bytes)::bigint as saved_bytes
from operations.model_fits
where run_id = $run_id
group by all
order by protocol, model

-- name: model_settings
-- One row per model that has settings to search: where those of the run come from, and what a search was worth.
select
    model,
    case origin
        when 'search' then 'searched in this run'
        when 'kept' then 'searched on ' || searched_on
        when 'data set' then 'the data set''s file'
        when 'given' then 'given'
        else 'defaults'
    end as origin,
    metric,
    at_start,
    reached,
    reached - at_start as gain,
    trials,
    reason
from operations.model_settings
where run_id = $run_id
order by origin, model

-- name: list_hits
-- One row per run of the last 30 whose lists were published and whose users came back, the newest first.
select
    made_at,
    users,
    likes,
    hits,
    recall,
    recall_error,
    ndcg,
    ndcg_error,
    ndcg - popularity_ndcg as gain,
    ndcg_gain_error as gain_error
from diagnostics.list_hits
order by made_at desc
limit 30

-- name: sample_users
-- One row per item shown of five sample users: their newest likes and first recommendations, which have a mark if a rule
-- pins them or nobody likes them yet. The users are spread over the lengths of history, the same five each time.
with lengths as (
    select
        user_id,
        count(*) as likes
    from curated.interactions
    semi join published.recommendations using (user_id)
    group by user_id
), ordered as (
    select
        user_id,
        likes,
        row_number() over (order by likes, user_id) - 1 as place
    from lengths
), chosen as (
    select
        user_id,
        likes
    from ordered
    where place in (
        select floor(share * (select max(place) from ordered)) from unnest([0.1, 0.3, 0.5, 0.7, 0.9]) as shares (share)
    )
), shown as (
    select
        user_id,
        'newest' as list,
        row_number() over (
            partition by user_id order by first_at desc nulls last, first_file_id desc, first_line desc, item_index
        ) as place,
        item_id,
        '' as mark
    from curated.interactions
    semi join chosen using (user_id)
    qualify place <= $items
    union all
    select
        user_id,
        'recommended',
        rank,
        item_id,
        case when list_contains($pinned::varchar[], item_id) then 'pinned' when is_new then 'new' else '' end
    from published.recommendations
    semi join chosen using (user_id)
    where rank <= $items
), popular as (
    select
        item_id,
        count(*) as users
    from curated.interactions
    semi join shown using (item_id)
    group by item_id
)
select
    user_id,
    likes,
    list,
    place,
    item_id,
    mark,
    coalesce(users, 0) as users
from shown
join chosen using (user_id)
left join popular using (item_id)
order by likes, user_id, list, place

-- name: unread_files
-- One row per file of the landing folder that the run did not read, with the reason.
select name, outcome, split_part(reason, chr(10), 1) as reason
from operations.arrivals
where run_id = $run_id and outcome in ('set aside', 'unmatched')
order by name

-- name: funnel
-- One row per step from the lines of all logs to the edges of the observed graph in a run; lost is null in the first.
select
    if(step = 0, null, lost) as lost,
    reason,
    remaining,
    users,
    items
from operations.funnel
where run_id = $run_id
order by step

-- name: searched_users
-- One row per user with a published list, those with the most likes first: the likes, and the first ten items.
with listed as (
    select
        user_id,
        list(item_id order by rank) filter (rank <= 10) as items
    from published.recommendations
    group by user_id
), histories as (
    select
        user_id,
        count(*) as likes
    from curated.interactions
    group by user_id
)
select
    user_id,
    coalesce(likes, 0) as likes,
    items
from listed
left join histories using (user_id)
order by likes desc, user_id
limit $most

-- name: searched_items
-- One row per item that is liked or in a list, those with the most likes first: its likes, the lists that have it, and whether
-- a rule pins it or nobody likes it yet.
with liked as (
    select
        item_id,
        count(*) as likes
    from curated.interactions
    group by item_id
), listed as (
    select
        item_id,
        count(*) as lists,
        bool_or(is_new) as is_new
    from published.recommendations
    group by item_id
)
select
    item_id,
    coalesce(likes, 0) as likes,
    coalesce(lists, 0) as lists,
    case when list_contains($pinned::varchar[], item_id) and lists > 0 then 'pinned' when is_new then 'new' else '' end as mark
from liked
full join listed using (item_id)
order by likes desc, item_id
limit $most

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

-- name: metric_changes
-- One row per protocol, model, score and main metric that this run or the previous one has. The standard error
-- of the change is that of two independent means; a change is better or worse when it is more than twice that.
with main as (
    select unnest($main_metrics, recursive := true)
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

-- name: setting_changes
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
