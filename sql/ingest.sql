-- name: text
-- One row per record of a delimited log, in the file's order; lines that are none go to ingest_errors. Every cell is text.
read_csv(
    {path}, columns = {columns}, auto_detect = false, header = false, skip = {skip}, delim = {delimiter}, quote = {quote},
    escape = {quote}, comment = '', null_padding = {is_padded}, max_line_size = {longest},
    buffer_size = {buffer}, store_rejects = true, rejects_table = 'ingest_errors', rejects_scan = 'ingest_scans'
)

-- name: lines
-- One row per line of a log; null where it is blank. No delimiter, quote or escape: a line is taken as it stands.
read_csv(
    {path}, columns = {'line': 'VARCHAR'}, auto_detect = false, header = false, delim = '', quote = '', escape = '',
    comment = '', max_line_size = {longest}, buffer_size = {buffer}
)

-- name: delimited
-- One row per record of a delimited log: its fields by their roles.
select
    null::bigint as line_number, {line} as line, null::varchar as fault,
    {user} as user_id, {item} as item_id, {value} as value, {time} as time, {event} as event
from {relation}

-- name: json
-- One row per line of a log of JSON lines: its fields by their roles.
select
    line_number, line, if(json_valid(line), null, 'is not JSON') as fault,
    {user} as user_id, {item} as item_id, {value} as value, {time} as time, {event} as event
from (select row_number() over () as line_number, line from {relation})
where trim(line, ' ' || chr(9)) <> ''

-- name: parquet
-- One row per row of a Parquet log: its columns by their roles.
select
    null::bigint as line_number, {line} as line, null::varchar as fault,
    {user} as user_id, {item} as item_id, {value} as value, {time} as time, {event} as event
from read_parquet({path}, hive_partitioning = false) as log

-- name: netflix
-- One row per line of a Netflix Prize log that is no header, `user,stars,date`, under the header `MOVIE:` above it. The line
-- and the movie of the last header are one number, so that a running maximum carries them down.
select
    line_number, rtrim({line}, ',') as line,
    case
        when movie is null or movie & 4294967295 = 0 then 'no readable MOVIE: header stands above it'
    end as fault,
    c1 as user_id, (movie & 4294967295)::varchar as item_id, c2 as value, c3 as time, null::varchar as event
from (
    select
        *,
        max(if(
            c2 is null and contains(c1, ':'),
            (line_number << 32) | coalesce(try_cast(regexp_extract(c1, '^\s*(\d{1,9})\s*:\s*$', 1) as bigint), 0), null
        )) over (rows unbounded preceding) as movie
    from (select *, row_number() over () + {skip} as line_number from {relation})
)
where c2 is not null or c3 is not null or not regexp_full_match(c1, '\s*(\d{1,9}\s*:\s*)?')

-- name: adjacency
-- One row per item of a line `user item item ...`, or `count item item ...` of the user that is the line's number; and one
-- per line that cannot be read.
with split as (
    select line_number, line, string_split_regex(trim(line, ' ' || chr(9)), '[ \t]+') as field
    from (select row_number() over () as line_number, line from {relation})
    where trim(line, ' ' || chr(9)) <> ''
),
checked as (
    select
        *,
        case
            when not {counted} then null
            when not regexp_full_match(field[1], '\d{1,18}') then 'does not begin with a count'
            when field[1]::bigint <> len(field) - 1
                then format('counts {} items, but {} follow', field[1], len(field) - 1)
        end as fault
    from split
)
select
    line_number, line, fault,
    if({counted}, line_number::varchar, field[1]) as user_id,
    unnest(if(fault is null, field[2:], [null])) as item_id,
    unnest(if(fault is null, range(1, len(field)), [null]))::integer as place,
    '1' as value, null::varchar as time, null::varchar as event
from checked

-- name: parse
-- One row per event of a log: what it says; whether it is one, which costs less than the reason why not. DuckDB parses
-- `204-01-01`, from a damaged line, as a date in the year 204; ids of digits are spared the search among names, which are
-- one text: DuckDB would join a list with every line.
with records as (
    {records}
    {limit}
),
trimmed as (
    select
        * exclude (user_id, item_id, value),
        if({trims_user}, trim(user_id, $blanks), user_id) as user_id,
        if({trims_item}, trim(item_id, $blanks), item_id) as item_id,
        {number} as value
    from records
),
typed as (
    select
        * exclude (user_id, item_id),
        if(contains(user_id, '.0') and regexp_full_match(user_id, '-?\d+\.0+'), split_part(user_id, '.', 1), user_id) as user_id,
        if(contains(item_id, '.0') and regexp_full_match(item_id, '-?\d+\.0+'), split_part(item_id, '.', 1), item_id) as item_id,
        {occurred_at} as occurred_at
    from trimmed
),
numbered as (  -- also keeps DuckDB from pushing the conditions below, where each would parse the cells again
    select * exclude (line_number), row_number() over () as record, line_number from typed
)
select
    * exclude (fault, line_number), coalesce(line_number, record + $skip) as line_number,
    fault is null and user_id > '' and item_id > '' and isfinite(value)
        and strlen(user_id) <= $longest_id and strlen(item_id) <= $longest_id
        and coalesce(value >= $low, true) and coalesce(value <= $high, true)
        and (not $has_time or (
            occurred_at between timestamp '1000-01-01' and $latest
            and occurred_at not between timestamp '1969-12-31 10:00' and timestamp '1970-01-01 14:00'
        ))
        and (len($kinds) = 0 or list_contains($kinds, event))
        and not case
            when user_id >= $least or item_id >= $least
                then contains($missing, chr(31) || user_id || chr(31)) or contains($missing, chr(31) || item_id || chr(31))
                    or (contains($header, chr(31) || lower(user_id) || chr(31)) and contains($header, chr(31) || lower(item_id) || chr(31)))
            else false
        end
        and not ($is_damaged and contains(user_id || item_id, chr(65533)))
        and not ($is_quoted and (contains(user_id, chr(10)) or contains(item_id, chr(10)))) as is_event,
    case
        when fault is not null then fault
        when contains($header, chr(31) || lower(user_id) || chr(31)) and contains($header, chr(31) || lower(item_id) || chr(31)) then 'is a header'
        when coalesce(user_id, '') = '' then 'names no user'
        when coalesce(item_id, '') = '' then 'names no item'
        when contains(user_id || item_id, chr(65533)) then 'holds bytes that are not UTF-8 text, shown as U+FFFD'
        when contains($missing, chr(31) || user_id || chr(31)) then format('names no user: {} stands for a missing id (missing_ids)', user_id)
        when contains($missing, chr(31) || item_id || chr(31)) then format('names no item: {} stands for a missing id (missing_ids)', item_id)
        when strlen(user_id) > $longest_id then format('the user''s id is longer than {} bytes', $longest_id)
        when strlen(item_id) > $longest_id then format('the item''s id is longer than {} bytes', $longest_id)
        when contains(user_id || item_id, chr(10)) then 'has an id of several lines: quotes do not pair'
        when value is null then 'value is not a number'
        when not isfinite(value) then 'value is not finite'
        when value < $low then format('value is below value_min = {:g} of the data set''s file', $low)
        when value > $high then format('value is above value_max = {:g} of the data set''s file', $high)
        when $has_time and occurred_at between $latest and timestamp '9999-12-31 23:59:59.999999'
            then format('time is later than the clock by over max_future_days = {:g} of the data set''s file', $future_days)
        when $has_time and occurred_at between timestamp '1969-12-31 10:00' and timestamp '1970-01-01 14:00'
            then 'time is 1970-01-01, which stands for a missing one'
        when $has_time and not coalesce(occurred_at between timestamp '1000-01-01' and $latest, false)
            then 'time is not a date or time in the form of the log'
        when coalesce(event, '') = '' then 'names no kind of event'
        else 'unknown kind of event ' || left(event, 100)
    end as reason
from numbered

-- name: events
-- raw.events: one row per record (per item of an adjacency list) that could be read.
insert into raw.events
select user_id, item_id, value, occurred_at, $file_id, line_number, event
from ({parsed}) as parsed
where is_event

-- name: places
-- raw.places: one row per item of an adjacency list that could be read, with its place among these of the line.
insert into raw.places
select $file_id, line_number, row_number() over (partition by line_number order by place), item_id
from ({parsed}) as parsed
where is_event

-- name: rejects
-- raw.rejects: one row per record that is no event; of a long one its beginning.
insert into raw.rejects
select $file_id, line_number, left(line, 1000), reason
from ({parsed}) as parsed
where not coalesce(is_event, false)

-- name: broken_lines
-- raw.rejects: one row per line that is no record. DuckDB has an error for each column that is missing or too many, with
-- its number.
insert into raw.rejects
select
    {file_id}, line, left(any_value(csv_line), 1000),
    case max(error_type)
        when 'MISSING COLUMNS' then format('{} fields instead of {fields}', min(column_idx))
        when 'TOO MANY COLUMNS' then format('{} fields instead of {fields}', max(column_idx))
        else lower(max(error_type))
    end
from ingest_errors
group by line
having trim(any_value(csv_line), ' ' || chr(10) || chr(13)) <> ''

-- name: known_files
-- One row per log in the warehouse, with the name that it arrived by; null for logs of older versions, which stored no names.
select
    file_id,
    (
        select any_value(name)
        from operations.arrivals
        where arrivals.file_id = log_files.file_id and arrivals.sha256 = log_files.sha256
            and outcome in ('new', 'changed')
    ) as name,
    path, sha256, events, rejects, coalesce(content_sha256, sha256) as content_sha256,
    coalesce(names_columns, false) as names_columns
from operations.log_files
order by file_id

-- name: counts
-- One row per log of $file_ids with events or rejects: how many, of how many lines, and the first reject's line and
-- reason. Lines of an adjacency list hold many events each, so the last line number bounds a log's lines.
with lines as (
    select file_id, line_number, null as reason from raw.events
    union all
    select file_id, line_number, reason from raw.rejects
)
select
    file_id,
    count(*) filter (reason is null) as events,
    count(reason) as rejects,
    count(reason) + least(events, coalesce(max(line_number) filter (reason is null), 0)) as lines,
    min(line_number) filter (reason is not null) as first_line,
    arg_min(reason, line_number) as first_reason
from lines
where file_id in $file_ids
group by file_id

-- name: repeated
-- One row at most: the two logs with the most events in common, line for line, that a log of $file_ids has too: the path
-- of the later, that of the earlier, how many events of the later are in the earlier, and how many it has.
with arrived as (
    select user_id, item_id, value, occurred_at, coalesce(event, '') as event
    from raw.events
    where file_id in $file_ids and occurred_at is not null and (select count(*) from operations.log_files) > 1
),
events as (
    select file_id, user_id, item_id, value, occurred_at, coalesce(event, '') as event
    from raw.events
),
shared as (
    select user_id, item_id, value, occurred_at, event, min(file_id) as earlier_id, max(file_id) as later_id
    from events
    semi join arrived using (user_id, item_id, value, occurred_at, event)
    group by all
    having earlier_id < later_id
)
select later.path, earlier.path, count(*) as lines, later.events
from events
join shared using (user_id, item_id, value, occurred_at, event)
join operations.log_files as later on later.file_id = later_id
join operations.log_files as earlier on earlier.file_id = earlier_id
where events.file_id = later_id
group by all
order by lines desc, later.path
limit 1

-- name: sizes
-- One row: the size of the events that were read, their span, and how much of them is repeated.
with pairs as (
    select user_id, item_id, count(*) as events from raw.events group by all
)
select
    (select count(*) from raw.events) as events,
    (select count(*) from raw.rejects) as rejects,
    (select count(distinct user_id) from raw.events) as users,
    (select count(distinct item_id) from raw.events) as items,
    (select count(*) from pairs) as pairs,
    (select min(value) from raw.events) as lowest,
    (select max(value) from raw.events) as highest,
    (select min(occurred_at) from raw.events) as first_at,
    (select max(occurred_at) from raw.events) as last_at

-- name: reject_reasons
-- One row per reason for which lines were rejected: how many, and the first of them.
select reason, count(*) as lines, min(line_number) as line_number, arg_min(line, line_number) as line
from raw.rejects
group by reason
order by lines desc, reason

-- name: newest
-- One row: the newest time of the events that the query gave, or of all if it gave none, and the highest number of the
-- files with its new rows. A time later than its reading does not say how far the logs were read.
with read as (
    select
        if(occurred_at <= ingested_at, occurred_at, null) as occurred_at,
        regexp_matches(path, '(^|/)source(-\d+)?\.parquet$') as is_landed,
        try_cast(regexp_extract(path, '(^|/)source-(\d{6,})\.parquet$', 2) as bigint) as number
    from raw.events
    join operations.log_files using (file_id)
)
select
    if(bool_or(is_landed), max(occurred_at) filter (where is_landed), max(occurred_at)) as newest,
    coalesce(max(number), 0) as number
from read

-- name: new_rows
-- One row per row of `fetched` that is not in `landed`, as often as it is there more.
with before as (
    select {cells}
    from (from fetched where false union all by name from landed)
)
from fetched
except all
from before
where hash(before) in (select hash(fetched) from fetched)
order by all

-- name: current_attributes
-- One row at most: of the current table of attributes of a side, the digest of its file, its columns but the ids with their
-- types, what separates the names in a cell, and the bound of its share of empty cells.
select sha256, columns, types, separator, max_missing_share
from operations.attribute_tables
where side = $side and is_current

-- name: attribute_cells
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
