-- name: stored_settings
-- One row at most: the newest search for a model's settings that still holds. It was made on an earlier day or on this
-- one, at most so many days ago, by the same search (`key`), on a log that had about as many users, items and edges.
select *
from operations.model_settings
where model = $model
  and key = $key
  and origin in ('search', 'kept')
  and searched_on between $day::date - $days::integer and $day::date
  and greatest(users / $users, $users / users) <= $moved
  and greatest(items / $items, $items / items) <= $moved
  and greatest(edges / $edges, $edges / edges) <= $moved
order by searched_on desc, rowid desc
limit 1

-- name: trials
-- One row per trial of the searches whose settings a run used, made by it or by an earlier run. The settings of a kept
-- search have its key, day and time, and the newest row with these is that of the search itself.
with used as (
    select model, key, searched_on, seconds, rowid as place
    from operations.model_settings
    where run_id = $run_id and origin in ('search', 'kept')
), made as (
    select used.model, max_by(searched.run_id, searched.rowid) as run_id
    from used
    join operations.model_settings as searched using (model, key, searched_on, seconds)
    where searched.origin = 'search' and searched.rowid <= used.place
    group by used.model
)
select trials.*
from made
join operations.search_trials as trials using (run_id, model)
order by trials.model, trials.number
