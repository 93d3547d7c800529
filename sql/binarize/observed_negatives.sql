-- indexed.observed_negatives: one row per pair of a kept user and a kept item with an event, and no like, between $since and
-- $until: the user considered the item and did not like it.
insert into indexed.observed_negatives
select
    user_index,
    item_index,
    min(occurred_at) as first_at
from raw.events
join indexed.users using (user_id)
join indexed.items using (item_id)
anti join indexed.interactions using (user_index, item_index)
where value < $threshold
  and ($since is null or occurred_at >= $since)
  and ($until is null or occurred_at::date <= $until)
group by user_index, item_index
