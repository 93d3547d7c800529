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
