-- One row per user (item) index of the curated interactions: the number that the demo's log gave it.
select {side}_index as place, {side}_id::bigint - 1 as id from indexed.{side}s
