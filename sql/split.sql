-- name: active
-- rare_items and active_users: one row per item that strong_generalization leaves out, and per user that it keeps: its own one-pass
-- filter, items first, then users. There are mostly no rare items, and then the filter costs nothing.
create or replace temp table rare_items as
select item_index from indexed.interactions group by item_index having count(*) < {min_item_edges};
create or replace temp table active_users as
select user_index
from indexed.interactions
anti join rare_items using (item_index)
group by user_index
having count(*) >= {min_user_edges}
order by user_index

-- name: hashed_users
-- One row per user: the part depends on the user's id and the seed alone, so it never moves. Draws from $test_from to below
-- $validation_from are for test, and from there to below $validation_to for validation.
create or replace temp table user_parts as
with draws as (
    select
        user_index,
        (md5_number($seed || ':part:' || user_id) % 1000000007)::double / 1000000007 as draw
    from indexed.users
    semi join active_users using (user_index)
)
select
    user_index,
    (case
        when draw < $test_from or draw >= $validation_to then 'train'
        when draw < $validation_from then 'test'
        else 'validation'
    end)::enum('train', 'validation', 'test') as part
from draws

-- name: active_edges
-- One row per edge that strong_generalization keeps, with the part of its user.
create or replace temp view active_edges as
select
    user_index,
    item_index,
    coalesce(weight, event_count)::float as confidence,
    (first_file_id << 40) | first_line as position,
    part
from indexed.interactions
join user_parts using (user_index)
anti join rare_items using (item_index)

-- name: train_items
-- One row per item that a training user has, numbered in order of first appearance among them.
create or replace temp table train_items as
with appearances as (
    select item_index, min(position) as position
    from active_edges
    where part = 'train'
    group by item_index
)
select
    item_index,
    (row_number() over (order by position, item_index) - 1)::integer as item_column
from appearances

-- name: held_out_edges
-- One row per edge of a held-out user, its item's column null where no training user has it.
create or replace temp table held_out_edges as
select * from active_edges left join train_items using (item_index) where part <> 'train'

-- name: hashed_targets
-- One row per target: a fifth of the edges of each held-out user with at least five, drawn by hash; and, where most of those
-- with two or more have fewer than five, one edge of each of these.
create or replace temp table targets as
with candidates as (
    select
        user_index,
        item_index,
        row_number() over (
            partition by user_index order by md5_number($seed || ':target:' || user_id || ':' || item_id)
        ) as place,
        count(*) over (partition by user_index) as edges
    from held_out_edges
    join indexed.users using (user_index)
    join indexed.items using (item_index)
    where item_column is not null
), short as (
    select count(*) filter (edges < 5) > count(*) filter (edges >= 5) as histories
    from candidates
    where place = 1 and edges >= 2
)
select
    user_index,
    item_index
from candidates
cross join short
where place <= case when edges >= 5 then edges // 5 when edges >= 2 and short.histories then 1 else 0 end

-- name: candidates
-- One row per edge of a held-out user to an item that training users have: users in the order of their ids,
-- each user's edges in file order. Ids are compared once each, and then their places.
with users as (
    select
        user_index,
        part = 'validation' as in_validation,
        (row_number() over (order by part, try_cast(user_id as bigint), user_id))::integer as place
    from user_parts
    join indexed.users using (user_index)
    where part <> 'train'
), items as (
    select item_index, (row_number() over (order by item_id))::integer as place from indexed.items
)
select
    user_index,
    item_index,
    in_validation
from held_out_edges
join users using (user_index)
join items using (item_index)
where item_column is not null
order by users.place, position, items.place

-- name: held_out_roles
-- One row per edge of a held-out user with its part and role.
create or replace temp table held_out_roles as
select
    edges.user_index,
    edges.item_index,
    item_column,
    confidence,
    part,
    (case
        when item_column is null then 'dropped'
        when targets.item_index is not null then 'target'
        else 'fold_in'
    end)::enum('fit', 'fold_in', 'target', 'dropped') as role
from held_out_edges as edges
left join targets using (user_index, item_index)

-- name: roles
-- One row per edge of strong_generalization with its part and role, of the table's own types: text would be looked up row by row.
create or replace temp view roles as
select
    user_index,
    item_index,
    item_column,
    confidence,
    part,
    'fit'::enum('fit', 'fold_in', 'target', 'dropped') as role
from active_edges
join train_items using (item_index)
where part = 'train'
union all
select * from held_out_roles

-- name: left_out
-- One row per user with two or more edges: the edge to hold out, the one with the lowest MD5 of
-- `<seed>:leave_one_out:<user_id>:<item_id>`. Of more than $max_users such users, those with the lowest MD5 of
-- `<seed>:leave_one_out:<user_id>`.
create or replace temp table left_out as
with drawn as (
    select
        user_index,
        arg_min(item_index, md5_number($seed || ':leave_one_out:' || user_id || ':' || item_id)) as item_index
    from indexed.interactions
    join indexed.users using (user_index)
    join indexed.items using (item_index)
    group by user_index
    having count(*) >= 2
)
select
    user_index,
    item_index
from drawn
join indexed.users using (user_index)
order by md5_number($seed || ':leave_one_out:' || user_id)
limit $max_users

-- name: leave_one_out
-- One row per edge with its role: that of `left_out` is held out, the others train.
create or replace temp view leave_one_out_roles as
select
    edges.user_index,
    edges.item_index,
    edges.item_index as item_column,
    coalesce(weight, event_count)::float as confidence,
    case
        when edges.item_index = left_out.item_index then 'held_out'::enum('train', 'held_out')
        else 'train'::enum('train', 'held_out')
    end as role
from indexed.interactions as edges
left join left_out using (user_index)

-- name: cold_items
-- One row per edge with its role. An item is new by the MD5 of `<seed>:cold_item:<item_id>`, and an edge of the other items is
-- held out by that of `<seed>:cold_edge:<user_id>:<item_id>`, each with the chance $share. The edges of a user of whom none
-- trains are dropped.
create or replace temp table cold_items_roles as
with drawn as (
    select
        user_index,
        item_index,
        item_index as item_column,
        coalesce(weight, event_count)::float as confidence,
        case
            when (md5_number($seed || ':cold_item:' || item_id) % 1000000007)::double / 1000000007 < $share then 'new'
            when (md5_number($seed || ':cold_edge:' || user_id || ':' || item_id) % 1000000007)::double / 1000000007 < $share
                then 'held_out'
            else 'train'
        end as role
    from indexed.interactions
    join indexed.users using (user_index)
    join indexed.items using (item_index)
), trained as (
    select distinct user_index from drawn where role = 'train'
)
select * replace (case when trained.user_index is null then 'dropped' else role end as role)
from drawn
left join trained using (user_index)

-- name: next_cut
-- One row: the day from which on about so large a share of {edges} first appeared, null where none has a time.
select quantile_disc(first_at::date, 1 - $share) as next_from from {edges}

-- name: repeats
-- One row: the pairs with an event from $next_from on, of users and items with an earlier one; those of them that the user had
-- before, and the number of users of these.
with known_users as (
    select distinct user_index from indexed.interactions where first_at < $next_from
), known_items as (
    select distinct item_index from indexed.interactions where first_at < $next_from
)
select
    count(*) as pairs,
    count(*) filter (first_at < $next_from) as repeated,
    count(distinct user_index) filter (first_at < $next_from) as users
from indexed.interactions
semi join known_users using (user_index)
semi join known_items using (item_index)
where last_at >= $next_from

-- name: edges_astride
-- One row per edge that has events on both sides of the cut: how many came before it, and whether it was taken again from
-- then on (and before $before). A table of its own: it is mostly empty, and a plan that cannot know this builds a hash table
-- of all edges.
create or replace temp table edges_astride as
select
    user_index,
    item_index,
    count(*) filter (occurred_at < $next_from) as events,
    bool_or(occurred_at >= $next_from and ($before is null or occurred_at < $before)) as came_again
from {events} as events
join curated.interactions using (user_id, item_id)
where first_at < $next_from and last_at >= $next_from
group by user_index, item_index

-- name: counted_edges
-- One row per edge, where each event is a like by itself: whether it trains, by what came before the cut alone, and
-- whether it was taken from then on.
select
    user_index,
    item_index,
    coalesce(first_at < $next_from, false) as trains,
    coalesce(events, event_count)::float as confidence,
    first_at,
    coalesce(came_again, first_at >= $next_from, false) as is_taken
from {later}
left join edges_astride using (user_index, item_index)

-- name: all_ids
-- all_{side}s: one row per {side} of an event; those without a like, who may have had one before a cut, come after the others.
create or replace temp table all_{side}s as
with numbered as ({numbered})
select
    {side}_index,
    {side}_id
from numbered
union all
select
    ((select count(*) from numbered) + row_number() over (order by {side}_id) - 1)::integer,
    {side}_id
from (select distinct {side}_id from raw.events)
anti join numbered using ({side}_id)

-- name: summed_likes
-- {table}: one row per pair that the sum of the events before a day makes a like; the columns are those of indexed.interactions.
create or replace temp table {table} as
select
    user_index,
    item_index,
    first_at,
    last_at,
    weight
from weighted_pairs
join all_users using (user_id)
join all_items using (item_id)

-- name: summed_edges
-- One row per pair that is a like by the sums before the cut, and trains, or by those of later; and whether it is one of
-- later that was taken from the cut on, which a return is not.
select
    user_index,
    item_index,
    past.item_index is not null as trains,
    coalesce(past.weight, later.weight)::float as confidence,
    past.first_at,
    coalesce(later.last_at >= $next_from, false) as is_taken
from {past} as past
full join {later} as later using (user_index, item_index)

-- name: next_events
-- One row per edge with its role; with $seen_items, one that trains and is taken from the cut on has the role `again`.
create or replace temp table next_events_roles as
with known_users as (
    select distinct user_index, true as user_known from {past}
), known_items as (
    select
        item_index,
        (row_number() over (order by item_index) - 1)::integer as item_column
    from (select distinct item_index from {past})
)
select
    user_index,
    item_index,
    item_column,
    confidence,
    first_at,
    case
        when trains and is_taken and $seen_items then 'again'
        when trains then 'train'
        when is_taken and user_known and item_column is not null then 'next'
        else 'dropped'
    end as role
from ({edges})
left join known_users using (user_index)
left join known_items using (item_index)

-- name: given
-- One row per edge of the train and test files that a data set comes with; an edge in both is for training. `place` counts
-- the training edges of a user, from 1, in the order of its lines and of the items within them (`in_line`, which only
-- adjacency logs have), or of their times; those of one time by hash.
create or replace temp table given_roles as
with files as (
    select
        user_index,
        item_index,
        bool_or(file_id in ({train_files})) as in_train
    from raw.events
    join indexed.users using (user_id)
    join indexed.items using (item_id)
    where file_id in ({train_files}) or file_id in ({test_files})
    group by user_index, item_index
), lines as (
    select
        user_index,
        item_index,
        min((file_id, line_number, place)) as in_line
    from raw.places
    join raw.events using (file_id, line_number, item_id)
    join indexed.users using (user_id)
    join indexed.items using (item_id)
    where file_id in ({train_files})
    group by user_index, item_index
)
select
    edges.user_index,
    edges.item_index,
    edges.item_index as item_column,
    coalesce(weight, event_count)::float as confidence,
    case when in_train then 'train' else 'test' end as role,
    in_line is not null as has_place,
    first_at is not null as has_time,
    row_number() over (
        partition by edges.user_index, in_train
        order by in_line, first_at, md5_number(edges.user_index || ':' || edges.item_index)
    ) as place
from indexed.interactions as edges
join files using (user_index, item_index)
left join lines using (user_index, item_index)

-- name: line_order
-- One row: whether all training edges of a given split have places in their lines, whether all have times, and for which
-- share of them the id is above that of the edge before it in the line, as text and as a number (one half where none is one).
with neighbours as (
    select
        has_place,
        has_time,
        item_id,
        lag(item_id) over (partition by user_index order by place) as item_before
    from given_roles
    join indexed.items using (item_index)
    where role = 'train'
)
select
    coalesce(bool_and(has_place), false) as places,
    coalesce(bool_and(has_time), false) as times,
    coalesce(avg((item_id > item_before)::integer), 0.5) as ascending_text,
    coalesce(avg((try_cast(item_id as hugeint) > try_cast(item_before as hugeint))::integer), 0.5) as ascending_numbers
from neighbours

-- name: places
-- One row per edge of a relation of edges, with the column of its item and its place: how many of the user's edges in the
-- relation are newer, counting those of one time once. By the time of the first like, those without being the oldest; in logs
-- without times by its line, and within a line of an adjacency list by the place in it (`in_line`).
create or replace temp table placed_edges as
with edges as (
    select
        user_index,
        item_index,
        item_column,
        first_at,
        position
    from {edges}
), lines as (
    select
        (file_id << 40) | line_number as position,
        item_id,
        min(place) as in_line
    from raw.places
    group by file_id, line_number, item_id
)
select
    user_index,
    item_column,
    (dense_rank() over (
        partition by user_index
        order by
            coalesce(first_at, oldest) desc,
            if(oldest is null, position, null) desc,
            if(oldest is null, in_line, null) desc nulls last
    ) - 1)::integer as place
from edges
left join indexed.items using (item_index)
left join lines using (position, item_id)
cross join (select min(first_at) as oldest from indexed.interactions)

-- name: last_day
-- last_day: one row: the last day that is trained on, the one before $before or that of the last event; null where no event
-- has a time.
create or replace temp table last_day as
select
    if(count(occurred_at) = 0, null, coalesce($before::date - 1, max(occurred_at)::date)) as day,
    min(occurred_at)::date as first_day
from {events}

-- name: event_ages
-- event_ages: one row per event of an edge of the users in `aged_users` that counts and was not after the last day, with its
-- age in days; that of an event without a time is the highest.
create or replace temp table event_ages as
with edges as (
    select
        user_index,
        item_index,
        item_column
    from {edges}
), aged as (
    select
        edges.user_index,
        edges.item_column,
        (day - coalesce(occurred_at::date, first_day))::integer as age
    from edges
    semi join aged_users using (user_index)
    cross join last_day
    join {users} as users using (user_index)
    join {items} as items using (item_index)
    left join {events} as events
        on events.user_id = users.user_id
        and events.item_id = items.item_id
        and (weight is null or weight > 0)
        and (occurred_at is null or occurred_at::date <= day)
)
select
    *,
    row_number() over (partition by user_index, item_column order by age) = 1 as is_first
from aged

-- name: leakage
-- diagnostics.leakage: one row per protocol with targets of known times. `future_edges` is the mean over its targets of the
-- number of training edges that first appear on a later day, `future_items` that of items whose first training edge does.
-- Of next_events the targets that also train are left out, whose later events have no date here. What trains is dated by when
-- it came to be a like before the cut; an edge that was none then, or one that does not train, counts as of after all targets.
-- With $folds above 1 strong_generalization is counted fold by fold; `edges` and `items` are means over the folds. `split` is the
-- protocol's number in millions and the fold: groups by text take twice as long.
insert into diagnostics.leakage
with fold_numbers as (
    select
        user_index,
        floor((md5_number($seed || ':part:' || user_id) % 1000000007)::double / 1000000007 * $folds)::integer as fold
    from indexed.users
    where $folds > 1
), folds as (
    select unnest(range($folds))::integer as fold
), roles as (
    select
        0 as split,
        user_index,
        item_index,
        role = 'fit' as trains,
        part = 'test' and role = 'target' as is_target
    from indexed.strong_generalization
    where $folds = 1
    union all
    select
        folds.fold,
        user_index,
        item_index,
        fold_numbers.fold <> folds.fold,
        fold_numbers.fold = folds.fold and role = 'target'
    from indexed.strong_generalization
    join fold_numbers using (user_index)
    cross join folds
    union all
    select 1_000_000, user_index, item_index, role = 'train', role = 'held_out' from indexed.leave_one_out
    union all
    select 2_000_000, user_index, item_index, role = 'train', role in ('held_out', 'new') from indexed.cold_items
    union all
    select 3_000_000, user_index, item_index, false, role = 'next' from indexed.next_events
    union all
    select 4_000_000, user_index, item_index, role = 'train', role = 'test' from indexed.given
), dated as (
    select
        split,
        item_index,
        trains,
        is_target,
        first_at::date as day
    from roles
    join indexed.interactions using (user_index, item_index)
    where first_at is not null and (trains or is_target)
    union all
    select
        3_000_000,
        item_index,
        true,
        false,
        if(trained.role is null or past.first_at is null, date '9999-12-31', past.first_at::date)
    from (from indexed.next_events where role in ('train', 'again')) as trained
    full join {past} as past using (user_index, item_index)
), edges_by_day as (
    select
        split,
        day,
        count(*) filter (trains) as edges,
        count(*) filter (is_target) as targets
    from dated
    group by split, day
), items_by_day as (
    select
        split,
        day,
        count(*) as items
    from (select split, item_index, min(day) as day from dated where trains group by split, item_index)
    group by split, day
), later as (
    select
        split,
        coalesce(targets, 0) as targets,
        coalesce(edges, 0) as edges,
        coalesce(items, 0) as items,
        coalesce(sum(edges) over later_days, 0) as later_edges,
        coalesce(sum(items) over later_days, 0) as later_items
    from edges_by_day
    full join items_by_day using (split, day)
    window later_days as (
        partition by split order by day desc rows between unbounded preceding and 1 preceding
    )
), by_fold as (
    select
        ['strong_generalization', 'leave_one_out', 'cold_items', 'next_events', 'given'][split // 1_000_000 + 1] as protocol,
        sum(targets) as targets,
        sum(edges) as edges,
        sum(items) as items,
        sum(targets * later_edges) as later_edges,
        sum(targets * later_items) as later_items
    from later
    group by split
)
select
    protocol,
    sum(targets),
    round(avg(edges)),
    round(avg(items)),
    sum(later_edges) / sum(targets),
    sum(later_items) / sum(targets)
from by_fold
group by protocol
having sum(targets) > 0

-- name: observed_negatives
-- One row per observed negative with its role in a protocol: `train`; the part whose users it is held out of, as large a share
-- of a user's as of the user's likes, drawn by hash; or `left_out`, of users who are not trained on.
create or replace temp table observed_negatives_roles as
with drawn as (
    select
        user_index,
        item_index,
        item_column,
        (md5_number($seed || ':observed_negative:' || $protocol || ':' || user_id || ':' || item_id) % 1000000007)::double
            / 1000000007 as draw
    from {negatives}
    left join indexed.users using (user_index)
    left join indexed.items using (item_index)
    join split_columns using (item_index)
)
select
    user_index,
    item_column,
    1::float as confidence,
    case
        when draw < share then part
        when trained is null or trained then 'train'
        else 'left_out'
    end as role
from drawn
left join held_out_shares using (user_index)

-- name: new_items
-- indexed.new_items: one row per item of the table of attributes that nobody likes, numbered after those that are liked.
insert into indexed.new_items
select
    (select count(*) from indexed.items) + row_number() over (order by id) - 1 as item_index,
    id as item_id
from (select distinct id from raw.attributes where side = 'item')
where id not in (select item_id from indexed.items)

-- name: sizes
-- One row: how many users and items the curated interactions number.
select
    (select count(*) from indexed.users) as users,
    (select count(*) from indexed.items) as items

-- name: numbering
-- One row: a digest of the ids behind the first indices of either side, to verify that they are unchanged.
select md5(concat(
    (select string_agg(user_id, chr(10) order by user_index) from indexed.users where user_index < $users),
    chr(0),
    (select string_agg(item_id, chr(10) order by item_index) from indexed.items where item_index < $items)
))
