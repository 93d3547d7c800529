-- One row per day of the last 30 of the log that has times, oldest first: the likes that are first seen on it.
with days as (
    select
        first_at::date as day,
        count(*) as likes
    from indexed.interactions
    where first_at is not null
    group by day
), last as (
    select max(day) as day from days
)
select
    calendar.day::date as day,
    coalesce(likes, 0) as likes
from last, unnest(generate_series(last.day - interval 29 day, last.day, interval 1 day)) as calendar (day)
left join days on days.day = calendar.day::date
order by day
