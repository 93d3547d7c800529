-- name: latest_fit
-- One row: the fit of a model on a protocol by the last evaluated run that has one.
select digest
from operations.model_fits
join operations.evaluated_runs using (run_id)
where protocol = $protocol and model = $model
order by place desc
limit 1

-- name: retained_fits
-- One row per fit that is kept: of the latest runs that were evaluated, and of the run that is going on. The latest are
-- those recorded last, for a clock may be set back.
with latest as (
    select run_id
    from operations.runs
    semi join operations.evaluated_runs using (run_id)
    order by runs.rowid desc
    limit $runs
), kept as (
    from latest
    union
    select run_id from operations.runs where state = 'running'
)
select distinct
    model,
    digest
from operations.model_fits
semi join kept using (run_id)

-- name: stored_settings
-- One row at most: the newest search for a model's settings that still holds. It was made on an earlier day or on this
-- one, at most so many days ago, by the same search (`key`), on a log that had about as many users, items and edges.
select *
from operations.model_settings
where model = $model
  and key = $key
  and origin in ('search', 'kept')
  and searched_on between $searched_on::date - $days::integer and $searched_on::date
  and greatest(users / $users, $users / users) <= $moved
  and greatest(items / $items, $items / items) <= $moved
  and greatest(edges / $edges, $edges / edges) <= $moved
order by searched_on desc, rowid desc
limit 1
