-- One row per edge of a relation of edges, with the column of its item and its place: how many of the user's edges in the
-- relation are newer. By the time of the first like; where that is absent or the same, by its line in the logs, unless
-- {position} says which line counts; and within a line of an adjacency list by the place in it (`in_line`).
create or replace temp table placed_edges as
with edges as (
    select
        user_index,
        item_index,
        item_column,
        {position}::bigint as position
    from {edges}
), lines as (
    select
        file_id as first_file_id,
        line_number as first_line,
        item_id,
        min(place) as in_line
    from raw.places
    group by file_id, line_number, item_id
)
select
    user_index,
    item_column,
    (row_number() over (
        partition by user_index
        order by
            first_at desc nulls last,
            coalesce(position, (first_file_id << 40) | first_line) desc,
            in_line desc nulls last,
            item_index desc
    ) - 1)::integer as place
from edges
join indexed.interactions using (user_index, item_index)
join indexed.items using (item_index)
left join lines using (first_file_id, first_line, item_id)
