-- name: decisions
-- One row per promotion decision, newest first; of one run alone if it is named.
select *
from operations.promotions
where $run_id is null or run_id = $run_id
order by rowid desc
limit $rows

-- name: lists
-- One row: the lists in `ranked` compared with those published: `items` and `standing_items` count the distinct
-- items among the first of every list, to the smaller depth of both. And the sizes of the log: `sated` users like every
-- item.
with tonight as (
    from ranked where placement = ''
), depth as (
    select least(
        (select max(rank) from tonight),
        (select max(rank) from published.recommendations)
    ) as both
), spreads as (
    select
        count(*) as entries,
        max(score) > min(score) as differs
    from tonight
    group by user_index
), histories as (
    select count(*) as likes from indexed.interactions group by user_index
)
select
    (select count(*) from indexed.users) as users,
    (select count(*) from indexed.items) as catalogue,
    (select count(*) from histories where likes = (select count(*) from indexed.items)) as sated,
    (select count(*) from tonight) as entries,
    (select count(*) from tonight where not isfinite(score)) as not_finite,
    (select count(*) > 0 and not bool_or(differs) from spreads where entries > 1) as constant,
    (select count(distinct item_index) from tonight where rank <= depth.both) as items,
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
