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
