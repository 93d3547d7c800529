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
