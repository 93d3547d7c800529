-- name: not_in_truth
-- One row: how many curated edges the demo's truth does not have as likes, and how many of its likes are not curated.
with curated as (
    select user_id::bigint as "user", item_id::bigint as item from curated.interactions
), likes as (
    select "user", item from read_parquet($edges) where liked
)
select
    (select count(*) from curated anti join likes using ("user", item)) as only_curated,
    (select count(*) from likes anti join curated using ("user", item)) as only_true

-- name: deciding_protocol
-- One row: the protocol by whose validation users a run chose what to publish, or its first one if it has none; no row
-- without an evaluation.
select protocol
from evaluation.metrics
left join operations.runs using (run_id)
where run_id = $run_id
order by
    (metric = $metric and list_contains($choosing, protocol)) desc,
    (protocol is not distinct from (settings ->> '$.publish.protocol')) desc,
    list_position($protocols, protocol)
limit 1
