-- name: current
-- One row at most: of the current table of attributes of a side, the digest of its file, its columns but the ids with their
-- types, what separates the names in a cell, and the bound of its share of empty cells.
select sha256, columns, types, separator, max_missing_share
from operations.attribute_tables
where side = $side and is_current

-- name: cells
-- One row per cell of the current table of attributes of a side.
select id, name, value
from raw.attributes
where side = $side
order by id

-- name: described_ids
-- One row: how many ids the log has of a side, how many of them its current table has, and an id that it lacks.
with ids as (
    select distinct {side}_id as id from raw.events
), described as (
    select distinct id from raw.attributes where side = '{side}'
)
select
    count(described.id) as known,
    count(*) as ids,
    min(ids.id) filter (described.id is null) as example
from ids
left join described using (id)
