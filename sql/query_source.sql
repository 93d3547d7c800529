-- name: landed
-- One row per row of a landed file: its mark, and its columns as text by their names.
select {mark} as mark, map({names}, {texts}) as cells
from {relation}

-- name: next_boundary
-- One row: the least mark of the next query's rows. A mark far in the future, which is a slip of the pen, is none.
select greatest({lower}, cast($boundary as {type}))::varchar
from (select coalesce(max(mark) filter (where {is_past}), min(mark)) as mark from landed) as highest

-- name: shared_columns
-- One row per column that every row of `taken` has.
select name
from (select unnest(map_keys(cells)) as name from taken) as cells
group by name
having count(*) = (select count(*) from taken)

-- name: incomparable
-- One row at most: a mark that the database orders in another way than this statement, or that has no order.
select {mark}::varchar
from fetched
where not coalesce({is_comparable}, false) or {mark} < cast($boundary as {type})
limit 1

-- name: new_rows
-- One row per fetched row that was not taken: of equal rows as many as there are more than before.
with counted as (
    select {taken_key} as row_key, count(*) as copies
    from taken
    group by row_key
),
numbered as (
    select fetched_row, {fetched_key} as row_key, row_number() over (partition by {fetched_key}) as copy
    from fetched as fetched_row
)
select unnest(fetched_row)
from numbered
left join counted using (row_key)
where copy > coalesce(copies, 0)
order by fetched_row.{mark}
