-- name: lines
-- forgotten_lines: one row per line of a log that is of a forgotten user: an event, or a line that could not be read and
-- has an id in it as a word.
create or replace temp table forgotten_lines as
select file_id, line_number from raw.events where user_id in $users
union
select file_id, line_number from raw.rejects where regexp_matches(line, $pattern)

-- name: users
-- One row per user of $users that the logs have, if only in a line that could not be read.
select distinct user_id from raw.events where user_id in $users
union
select user_id
from (select unnest($users) as user_id) as users
where exists (
    from raw.rejects where regexp_matches(line, format('(^|[^{0}]){1}($|[^{0}])', $word, regexp_escape(user_id)))
)

-- name: remaining
-- One row per log: how many lines remain of it that could be read.
select file_id, count(*) as lines
from raw.events
anti join forgotten_lines using (file_id, line_number)
group by file_id

-- name: places
-- raw.places: one row per item of a line that stays.
from raw.places anti join forgotten_lines using (file_id, line_number)

-- name: rejects
-- raw.rejects: one row per line that could not be read, without the text of a forgotten user's.
select
    file_id,
    line_number,
    if((file_id, line_number) in (from forgotten_lines), null, line) as line,
    regexp_replace(reason, $pattern, '\1[removed]\2', 'g') as reason
from raw.rejects

-- name: attributes
-- raw.attributes: one row per cell of an item or a user who stays.
from raw.attributes where side = 'item' or id not in $users

-- name: attribute_tables
-- operations.attribute_tables: one row per table, the current one of users without those who are forgotten.
select
    * replace (
        if(
            side = 'user' and is_current,
            (select count(distinct id) from raw.attributes where side = 'user' and id not in $users),
            rows
        ) as rows
    )
from operations.attribute_tables

-- name: described_users
-- One row at most: the file of the current table of users' attributes, where it describes one of $users.
select path
from operations.attribute_tables
where side = 'user' and is_current and exists (from raw.attributes where side = 'user' and id in $users)

-- name: contract_results
-- operations.contract_results: one row per rule and run, without the rows that broke it, which may name users.
select * replace (if(success, observed, null) as observed, '[]'::json as samples)
from operations.contract_results

-- name: arrival_reasons
-- operations.arrivals: one row per log that arrived, without ids in the reason why it was not read.
select * replace (regexp_replace(reason, $pattern, '\1[removed]\2', 'g') as reason)
from operations.arrivals

-- name: tables
-- One row per table of a database: whether it has a column of users' ids.
select
    concat_ws('.', schema_name, table_name) as name,
    list_contains(
        (
            select list(column_name)
            from duckdb_columns() as columns
            where columns.table_oid = tables.table_oid and columns.database_name = tables.database_name
        ),
        'user_id'
    ) as has_user_ids
from duckdb_tables() as tables
where database_name = $database and not internal and not temporary
order by name

-- name: log_files
-- operations.log_files: one row per log; of a rewritten one the digests of its new bytes. A log that is now equal to another
-- keeps its digests: the next run finds its file under its name with known content, and withdraws the events.
update clean.operations.log_files as files
set
    sha256 = if(changed.is_same_file, changed.sha256, files.sha256),
    bytes = if(changed.is_same_file, changed.bytes, files.bytes),
    content_sha256 = changed.content_sha256
from (
    select rewritten.*, rewritten.sha256_before = earlier.sha256 as is_same_file
    from (
        select
            unnest($file_ids::bigint[]) as file_id, unnest($digests_before::varchar[]) as sha256_before,
            unnest($digests::varchar[]) as sha256, unnest($sizes::bigint[]) as bytes,
            unnest($contents::varchar[]) as content_sha256
    ) as rewritten
    join operations.log_files as earlier using (file_id)
    where rewritten.content_sha256 not in (select coalesce(content_sha256, sha256) from operations.log_files)
    qualify row_number() over (partition by file_id order by is_same_file desc) = 1
        and first_value(file_id) over (partition by rewritten.content_sha256 order by file_id) = file_id
) as changed
where files.file_id = changed.file_id

-- name: arrivals
-- operations.arrivals: one row per arrival; of a log that is in the warehouse its new digest and counts.
update clean.operations.arrivals as arrivals
set sha256 = files.sha256, events = files.events
from clean.operations.log_files as files, operations.log_files as earlier
where earlier.file_id = files.file_id
    and arrivals.file_id = files.file_id
    and arrivals.sha256 = earlier.sha256
    and arrivals.outcome in ('new', 'changed')

-- name: counts
-- operations.log_files: one row per log that lost lines, with the events that remain.
update clean.operations.log_files as files
set events = (select count(*) from clean.raw.events as events where events.file_id = files.file_id)
where file_id in (select file_id from forgotten_lines)
