-- name: users
-- One row per user who likes anything, by index, with how many items they like.
select
    user_id,
    items
from indexed.users
join (select user_index, count(*) as items from indexed.interactions group by user_index) using (user_index)
order by user_index

-- name: excluded
-- One row per pair of a user and an item that must not be in the user's lists: the user has an event of one of the kinds,
-- or liked the item last at an unknown time or within so many days before the last like of all.
select
    user_index,
    item_index
from raw.events
join indexed.users using (user_id)
join (from indexed.items union all from indexed.new_items) using (item_id)
where list_contains($kinds::varchar[], event)
union
select
    user_index,
    item_index
from indexed.interactions
where $days is not null
  and coalesce(
      last_at > (select max(last_at) from indexed.interactions) - to_microseconds(($days * 86400000000)::bigint),
      true
  )
order by user_index, item_index
