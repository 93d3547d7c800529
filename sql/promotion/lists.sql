-- One row: what the lists in `ranked` are like, beside those that stand: `items` and `standing_items` are the different
-- items among the first of every list, as deep as both go.
with depth as (
    select least(
        (select max(rank) from ranked),
        (select max(rank) from published.recommendations)
    ) as both
), spreads as (
    select
        count(*) as entries,
        max(score) > min(score) as differs
    from ranked
    group by user_index
)
select
    (select count(*) from ranked) as entries,
    (select count(*) from ranked where not isfinite(score)) as not_finite,
    (select count(*) > 0 and not bool_or(differs) from spreads where entries > 1) as constant,
    (select count(distinct item_index) from ranked where rank <= depth.both) as items,
    (select count(distinct item_id) from published.recommendations where rank <= depth.both) as standing_items
from depth
