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
