-- name: decisions
-- One row per promotion decision, newest first; of one run alone if it is named.
select *
from operations.promotions
where $run_id is null or run_id = $run_id
order by rowid desc
limit $rows

-- name: last_promoted
-- One row: the configuration that was promoted last, with the latest run that fitted and promoted it, and the number of
-- users with recommendations; no row where nothing is known to be published.
with standing as (
    select challenger
    from operations.promotions
    where promoted
    order by rowid desc
    limit 1
)
select
    promotions.run_id,
    challenger,
    (select count(distinct user_id) from published.recommendations) as users
from operations.promotions
join standing using (challenger)
join operations.runs using (run_id)
where promoted and json_extract(runs.settings -> 'models', split_part(challenger, '/', 1)) is not null
order by promotions.rowid desc
limit 1

-- name: lists
-- One row: the lists in `ranked` compared with those published: `items` and `standing_items` count the distinct
-- items among the first of every list, to the smaller depth of both.
with depth as (
    select least(
        (select max(rank) from ranked),
        (select max(rank) from published.recommendations)
    ) as both
), spreads as (
    select
        count(*) as entries,
        max(score) > min(score) as differs
    from ranked
    group by user_index
)
select
    (select count(*) from ranked) as entries,
    (select count(*) from ranked where not isfinite(score)) as not_finite,
    (select count(*) > 0 and not bool_or(differs) from spreads where entries > 1) as constant,
    (select count(distinct item_index) from ranked where rank <= depth.both) as items,
    (select count(distinct item_id) from published.recommendations where rank <= depth.both) as standing_items
from depth

-- name: of_model
-- One row: a run's settings, those that a search before the fits chose for one of its models (null if
-- no search ran), and the score of this model with the best value of a metric, by the protocol that chose what the run
-- published; nulls where it has none.
with asked as (
    select settings ->> '$.publish.protocol' as protocol from operations.runs where run_id = $run_id
), best as (
    select metrics.*
    from evaluation.metrics as metrics, asked
    where run_id = $run_id
      and model = $model
      and metric = $metric
      and (asked.protocol is null or asked.protocol in ('auto', metrics.protocol))
    order by metrics.protocol = 'next_events' desc, value desc, score
    limit 1
)
select
    runs.settings,
    settled.settings as settled,
    best.score,
    best.value,
    best.standard_error,
    best.users,
    best.protocol
from operations.runs as runs
left join best using (run_id)
left join operations.model_settings as settled on settled.run_id = runs.run_id and settled.model = $model
where runs.run_id = $run_id
