-- curated.interactions: one row per edge of the observed graph G, a (user, item) pair that is liked: `indexed.interactions`
-- with the ids `user_id` and `item_id` beside the indices.
create schema if not exists curated;
create or replace view curated.interactions as
select
    user_id,
    item_id,
    user_index,
    item_index,
    event_count,
    first_at,
    last_at,
    first_file_id,
    first_line,
    weight
from indexed.interactions
join indexed.users using (user_index)
join indexed.items using (item_index);
-- splits.strong_generalization: one row per edge of a user that the protocol keeps: `indexed.strong_generalization` by
-- `user_id` and `item_id`.
create schema if not exists splits;
create or replace view splits.strong_generalization as
select
    user_id,
    item_id,
    part::varchar as part,
    role::varchar as role
from indexed.strong_generalization
join indexed.users using (user_index)
join indexed.items using (item_index);
-- splits.leave_one_out: one row per curated edge: `indexed.leave_one_out` by `user_id` and `item_id`.
create or replace view splits.leave_one_out as
select
    user_id,
    item_id,
    role::varchar as role
from indexed.leave_one_out
join indexed.users using (user_index)
join indexed.items using (item_index);
-- splits.cold_items: one row per curated edge: `indexed.cold_items` by `user_id` and `item_id`.
create or replace view splits.cold_items as
select
    user_id,
    item_id,
    role::varchar as role
from indexed.cold_items
join indexed.users using (user_index)
join indexed.items using (item_index);
-- splits.next_events: one row per curated edge: `indexed.next_events` by `user_id` and `item_id`.
create or replace view splits.next_events as
select
    user_id,
    item_id,
    role::varchar as role
from indexed.next_events
join indexed.users using (user_index)
join indexed.items using (item_index);
-- splits.given: one row per edge of the train and test files that a data set comes with: `indexed.given` by `user_id`
-- and `item_id`.
create or replace view splits.given as
select
    user_id,
    item_id,
    role::varchar as role
from indexed.given
join indexed.users using (user_index)
join indexed.items using (item_index);
-- curated.explicit_negatives: one row per pair of a user and an item that the user considered and did not like:
-- the rows of `indexed.observed_negatives` without a later like, by `user_id` and `item_id`.
create or replace view curated.explicit_negatives as
select
    user_id,
    item_id,
    first_at
from indexed.observed_negatives
join indexed.users using (user_index)
join indexed.items using (item_index)
where liked_at is null;
