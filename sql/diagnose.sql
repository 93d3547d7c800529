-- name: degrees
-- diagnostics.degrees: one row per side and degree that occurs in the observed graph.
insert into diagnostics.degrees
with users as (
    select 'user' as side, count(*) as degree from indexed.interactions group by user_index
),
items as (
    select 'item' as side, count(*) as degree from indexed.interactions group by item_index
),
vertices as (
    select * from users union all select * from items
)
select side, degree, count(*) as vertices
from vertices
group by side, degree
order by side, degree

-- name: list_hits
-- diagnostics.list_hits: one row at most: the run whose lists stand as published. A like is new if its log came in after
-- that run promoted its lists or, where it took the events up to a day, if it is of a later day. Where lists include
-- seen items, an older like that was taken again since is to be found too, and popularity ranks all items.
insert into diagnostics.list_hits
with made as (
    select
        runs.run_id,
        runs.started_at as made_at,
        decided_at,
        try_cast(runs.settings ->> 'until' as date) as until,
        coalesce(runs.settings ->> 'seen_items' = 'include', false) as has_seen
    from operations.promotions
    join operations.runs using (run_id)
    where promoted and run_id <> $run_id
    qualify row_number() over (order by promotions.rowid desc) = 1
), shown as (
    select max(rank) as length from published.recommendations
), taken as (  -- the last event of a pair, in a log that came in later
    select distinct events.user_id, events.item_id, events.occurred_at as last_at
    from made, raw.events
    join operations.log_files using (file_id)
    where has_seen and ingested_at > decided_at
), likes as (
    select
        user_id,
        item_id,
        item_index,
        case
            when made.until is not null then first_at >= made.until + interval 1 day
            else log_files.ingested_at > made.decided_at
        end as is_new,
        is_new or has_seen and case
            when made.until is not null then last_at >= made.until + interval 1 day
            else taken.last_at is not null
        end as is_target
    from made, curated.interactions
    left join operations.log_files on file_id = first_file_id
    left join taken using (user_id, item_id, last_at)
), popularity as (
    select
        item_index,
        row_number() over (order by count(*) desc, item_index) as place
    from likes
    where not coalesce(is_new, false)
    group by item_index
), targets as (
    select
        user_id,
        likes.item_id,
        rank as place,
        popularity.place - (
            select count(*)
            from likes as known
            join popularity as ahead using (item_index)
            where known.user_id = likes.user_id
                and not coalesce(known.is_new, false)
                and not has_seen
                and ahead.place < popularity.place
        ) as popular_place
    from made, likes
    left join published.recommendations using (user_id, item_id)
    left join popularity using (item_index)
    where likes.is_target and user_id in (select user_id from published.recommendations)
), users as (
    select
        user_id,
        count(*) as likes,
        count(*) filter (place <= length) as hits,
        count(*) filter (popular_place <= length) as popular_hits,
        coalesce(sum(1 / log2(place + 1)) filter (place <= length), 0) as gain,
        coalesce(sum(1 / log2(popular_place + 1)) filter (popular_place <= length), 0) as popular_gain,
        list_sum(list_transform(range(1, least(length, count(*)) + 1), lambda place: 1 / log2(place + 1))) as ideal,
        least(length, count(*)) as most
    from targets, shown
    group by user_id, length
)
select
    any_value(made.run_id),
    any_value(made.made_at),
    any_value(shown.length),
    count(*),
    sum(likes),
    sum(hits),
    avg(hits / most),
    stddev_pop(hits / most) / sqrt(count(*)),
    avg(gain / ideal),
    stddev_pop(gain / ideal) / sqrt(count(*)),
    avg(popular_hits / most),
    avg(popular_gain / ideal),
    stddev_pop((gain - popular_gain) / ideal) / sqrt(count(*))
from users, made, shown
having count(*) > 0
