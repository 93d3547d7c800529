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

-- name: rule_breaches
-- rule_breaches: one row per listed item that breaks a rule, or category with too many. Created empty.
create or replace temp table rule_breaches (
    rule varchar,
    placement varchar,
    user_id varchar,
    item_id varchar,
    rank integer
)

-- name: ruled_lists
-- ruled_lists: one row per placement (null for the lists without, `(exploration)` for those that explore), user and
-- rank of the published lists.
create or replace temp view ruled_lists as
select null::varchar as placement, user_id, item_id, rank from published.recommendations
union all
select placement, user_id, item_id, rank from published.placements
union all
select '(exploration)' as placement, user_id, item_id, rank from published.exploration

-- name: rule_histories
-- rule_histories: one row per pair of a user and an item that they like: whether the days of `again_after_days` are over.
create or replace temp table rule_histories as
select
    user_id,
    item_id,
    $days is null or coalesce(
        epoch(last_at) <= (select epoch(max(last_at)) from indexed.interactions) - $days * 86400, false
    ) as may_come_again
from indexed.interactions
join indexed.users using (user_index)
join indexed.items using (item_index)

-- name: rule_events
-- rule_events: one row per pair of a user and an item with an event of a kind that keeps the item from the user's lists.
create or replace temp table rule_events as
select distinct user_id, item_id
from raw.events
where list_contains($kinds::varchar[], event)

-- name: rule_categories
-- rule_categories: one row per item and value of a column with a limit, `most`; `category` numbers the values.
create or replace temp table rule_categories as
select *, dense_rank() over (order by name, value)::integer as category
from incoming

-- name: breaches
-- One row per listed item of a placement that breaks a rule; of a category with too many items, one row for it.
insert into rule_breaches
with listed as (
    from ruled_lists where placement is not distinct from $placement
), pinned as (
    select *, row_number() over (partition by user_id order by list_position($pinned::varchar[], item_id)) as turn
    from listed
    where list_contains($pinned::varchar[], item_id)
)
select 'eligible', listed.*
from listed
join rule_items as item on item.item_id = listed.item_id
join rule_users as "user" on "user".user_id = listed.user_id
where ({condition}) is not true
union all
select 'not_banned', * from listed where list_contains($banned::varchar[], item_id)
union all
select 'pinned_first', * exclude (turn) from pinned where rank <> turn
union all
select 'max_per_category', $placement, user_id, name || ' = ' || value, last_rank
from (
    select user_id, category, max(rank) as last_rank
    from listed
    join rule_categories using (item_id)
    group by user_id, category, most
    having count(*) > most
)
join (select distinct category, name, value from rule_categories) using (category)
union all
select 'few_new', $placement, user_id, null, max(rank)
from listed
semi join indexed.new_items using (item_id)
group by user_id
having count(*) > $max_new
union all
select 'not_event', * from listed semi join rule_events using (user_id, item_id)
union all
select 'again_after_days', listed.*
from listed
join rule_histories using (user_id, item_id)
where not may_come_again
