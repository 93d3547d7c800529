-- One row at most: the list that stands as published, written model/score, when its recommendations were made, since
-- when it is the same model and score, and how many publications in a row were made by it.
with promoted as (
    select
        row_number() over (order by rowid) as place,
        challenger,
        decided_at
    from operations.promotions
    where promoted
), last as (
    from promoted order by place desc limit 1
), others as (
    select coalesce(max(place), 0) as place
    from promoted
    where challenger <> (select challenger from last)
)
select
    last.challenger as list,
    last.decided_at as made_at,
    min(promoted.decided_at) as since,
    count(*) as publications
from promoted, last
where promoted.place > (select place from others)
group by last.challenger, last.decided_at
