-- name: validation_lists
-- One row per model, among some, and score of this run, the best by a protocol's metric of the validation users first,
-- with its paired difference from the best, null for the best itself.
with lists as (
    select
        model,
        score,
        value,
        users,
        row_number() over (order by value desc, model, score) as place
    from evaluation.metrics
    where run_id = $run_id
      and protocol = $protocol
      and metric = $metric
      and list_contains($models, model)
), pairs as (
    from evaluation.pairs where run_id = $run_id and protocol = $protocol and metric = $metric
)
select
    lists.model,
    lists.score,
    lists.value,
    lists.users,
    difference,
    standard_error
from lists
join lists as best on best.place = 1
left join pairs
    on (pairs.model, pairs.score, other_model, other_score) = (lists.model, lists.score, best.model, best.score)
order by lists.place

-- name: standing
-- ranked: one row per user and rank of the lists that stand as published, in the ids of the logs.
create or replace temp view ranked as
select
    '' as placement,
    user_id as user_index,
    item_id as item_index,
    rank,
    score
from published.recommendations

-- name: ranked
-- ranked: one row per placement, user and rank, best first, in the indices of the curated interactions. The placement is
-- empty for the lists of all users, and has a name of its own for lists that explore.
create or replace temp table ranked as
select
    ''::varchar as placement,
    null::integer as user_index,
    null::integer as item_index,
    * exclude (user_id, item_id) replace (null::integer[] as because),
    null::double as propensity
from published.recommendations
limit 0

-- name: lists
-- One row per user and rank of the lists that {table} has, in the ids of the logs.
insert into {table}
with lists as (
    from ranked where {places}
), reasons as (
    select
        placement,
        user_index,
        rank,
        list(item_id order by place) as because
    from (
        select placement, user_index, rank, unnest(because) as item_index, generate_subscripts(because, 1) as place
        from lists
    )
    join indexed.items using (item_index)
    group by all
)
select {columns}
from (
    select lists.* exclude (because), user_id, item_id, reasons.because
    from lists
    join indexed.users using (user_index)
    join (from indexed.items union all from indexed.new_items) using (item_index)
    left join reasons using (placement, user_index, rank)
)
order by placement, user_index, rank

-- name: exploration
-- One row per list that explores and rank, in the ids of the logs.
insert into published.exploration
select
    date '1970-01-01' + $night::integer || '/' || user_id as list_id,
    user_id,
    'thompson' as policy,
    item_id,
    rank,
    score,
    propensity,
    like_mean,
    like_sd
from ranked
join indexed.users using (user_index)
join (from indexed.items union all from indexed.new_items) using (item_index)
where placement = $placement
order by user_index, rank

-- name: main_table
-- One row per protocol, model, score and main metric of one run: protocols in their order, the best list first,
-- then its metrics in their order. `difference` and what follows is the list's paired comparison with the best by the
-- first metric, null for the best itself; `p_value` is not corrected. `folds`: how many of the users' folds were fitted.
-- `left_out`: whether the run fits the model under no other protocol.
with main as (
    select unnest($main_metrics, recursive := true)
), found as (
    select protocol, metric, model, score, value, standard_error, users, place
    from evaluation.metrics
    join main using (protocol, metric)
    where run_id = $run_id
), judged as (
    select
        protocol,
        metric,
        model,
        score,
        row_number() over (partition by protocol order by value desc, model, score) as list_place
    from found
    where place = 0
), pairs as (
    from evaluation.pairs where run_id = $run_id
), against_best as (
    select
        pairs.protocol,
        pairs.model,
        pairs.score,
        difference,
        standard_error as difference_error,
        p_value
    from pairs
    join judged as best
        on (best.protocol, best.metric, best.model, best.score)
            = (pairs.protocol, pairs.metric, pairs.other_model, pairs.other_score)
    where list_place = 1
), folded as (
    select
        split_part(protocol, '_fold_', 1) as protocol,
        count(distinct protocol) as folds
    from operations.model_fits
    where run_id = $run_id and contains(protocol, '_fold_')
    group by all
)
select
    protocol,
    model,
    score,
    users,
    coalesce(folds, 1) as folds,
    difference,
    difference_error,
    p_value,
    json_exists(run.settings, format('$.left_out."{}"', model)) as left_out,
    found.metric,
    value,
    standard_error
from found
join judged using (protocol, model, score)
left join against_best using (protocol, model, score)
left join folded using (protocol)
left join operations.runs as run on run.run_id = $run_id
order by list_position([main.protocol for main in $main_metrics], protocol), list_place, place
