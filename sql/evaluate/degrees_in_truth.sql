-- One row per {side} of the demo's hidden graph: its number in the truth, from 0, and its degree.
select "{side}" - 1 as id, count(*) as degree from read_parquet($edges) group by id
