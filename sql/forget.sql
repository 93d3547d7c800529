-- name: rows
-- One row per row of a Parquet file with an id as a word: its number, and the text.
select file_row_number + 1, to_json(log)::varchar
from read_parquet($path, file_row_number = true, hive_partitioning = false) as log
where regexp_matches(to_json(log)::varchar, $pattern)

-- name: sums
-- One row: the events of a log, and sums of digests of its events and rejects, without those of $users.
select
    (select count(*) from raw.events where file_id = $file_id and user_id not in $users),
    (
        select sum(hash(user_id, item_id, value, occurred_at, event)::hugeint)
        from raw.events where file_id = $file_id and user_id not in $users
    ),
    (
        select sum(hash(line, reason)::hugeint)
        from raw.rejects where file_id = $file_id and not regexp_matches(line, $pattern)
    )

-- name: users
-- One row per user of $users in the warehouse: the events, and the logs that have them.
select user_id, count(*), list(distinct file_id) from raw.events where user_id in $users group by user_id

-- name: columns
-- One row per column of a table of a database.
select concat_ws('.', schema_name, table_name), column_name
from duckdb_columns()
semi join duckdb_tables() using (database_name, schema_name, table_name)
where database_name = $database and not internal
order by all

-- name: tables_elsewhere
-- One row per table of users' attributes that describes one of $users.
select path from operations.attribute_tables
where is_current and side = 'user' and exists (from raw.attributes where side = 'user' and id in $users)

-- name: naming_runs
-- One row per run in which a row that broke a contract named a user.
select distinct run_id
from operations.contract_results
where list_has_any((samples->>'$[*].*') || (samples->>'$[*]'), $users)

-- name: log_files
-- operations.log_files: one row per log; of one whose file was rewritten, the digests of the new file.
update clean.operations.log_files
set sha256 = $sha256, bytes = $bytes, content_sha256 = $content
where file_id = $file_id

-- name: counts
-- operations.log_files: one row per log, with the rows that it has.
update clean.operations.log_files as files
set events = (select count(*) from clean.raw.events as events where events.file_id = files.file_id),
    rejects = (select count(*) from clean.raw.rejects as rejects where rejects.file_id = files.file_id)

-- name: arrivals
-- operations.arrivals: one row per arrival; of a log that is in the warehouse, its digest and counts.
update clean.operations.arrivals as arrivals
set sha256 = files.sha256, events = files.events, rejects = files.rejects
from clean.operations.log_files as files
join operations.log_files as earlier using (file_id)
where arrivals.file_id = files.file_id
    and arrivals.sha256 = earlier.sha256
    and arrivals.outcome in ('new', 'changed')

-- name: attribute_tables
-- operations.attribute_tables: one row per table; of the current ones, the ids that raw.attributes has.
update clean.operations.attribute_tables as tables
set rows = (select count(distinct id) from clean.raw.attributes as cells where cells.side = tables.side)
where is_current
