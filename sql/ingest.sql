-- name: text
-- ingest_text: one row per line of the logs of a batch, in their order; null where a line is blank.
-- No delimiter, quote or escape: the reader takes a line as it stands. Row ids follow the lines.
create or replace temp table ingest_text as
select line, file_index
from read_csv(
    $paths,
    columns = {'line': 'VARCHAR'}, auto_detect = false, header = false,
    delim = '', quote = '', escape = '', comment = '',
    compression = $compression, max_line_size = $longest, buffer_size = $buffer
)

-- name: files
-- ingest_files: one row per log of a batch: its place in the batch, and its lines' positions [first, stop).
create or replace temp table ingest_files as
with logs as (
    select unnest($file_ids) as file_id, unnest($lines) as lines, unnest(range(len($lines))) as file_index
),
running as (
    select file_id, lines, file_index, sum(lines) over (order by file_index) as stop_position
    from logs
)
select
    file_id::bigint as file_id,
    file_index::ubigint as file_index,
    (stop_position - lines)::bigint as first_position,
    stop_position::bigint as stop_position
from running

-- name: lines
-- ingest_lines: one row per line of the logs of a batch, with its place in the batch (from 0) and in its file
-- (from 1).
create or replace temp view ingest_lines as
with numbered as (
    select line, file_index, rowid - {first_row} as position
    from ingest_text
)
select files.file_id, position, position - files.first_position + 1 as line_number, line
from numbered
join ingest_files as files using (file_index)

-- name: unpaired
-- ingest_unpaired: one row per line of a batch with an odd number of quotes: the last of them may begin a field that
-- goes on in the next line, or the first end one that began in a line above.
create or replace temp table ingest_unpaired as
select
    file_id,
    line_number,
    regexp_matches(line, {begins}) as begins,
    regexp_matches(line, {ends}) as ends
from ingest_lines
where line_number > {header_lines} and contains(line, '"')
    and (strlen(line) - strlen(replace(line, '"', ''))) % 2 = 1

-- name: spoilt
-- ingest_spoilt: one row per line of a batch that is part of a quoted field of several lines. A field of more than a
-- hundred lines is none: a quote stands there by mistake, and spoils its own line alone.
create or replace temp table ingest_spoilt as
with neighbours as (
    select
        file_id, line_number, begins,
        lead(line_number) over next_one as following,
        lead(ends) over next_one as following_ends
    from ingest_unpaired
    window next_one as (partition by file_id order by line_number)
)
select distinct file_id, unnest(range(line_number, following + 1)) as line_number
from neighbours
where begins and following_ends and following - line_number <= 100

-- name: fields
-- One row per line of a text log, its header and comments left out: its fields by their roles, as text.
with split as (
    select file_id, line_number, line, {split} as field
    from ingest_lines
    where line is not null and line_number > {header_lines} and {is_data}
)
select
    file_id, line_number, line,
    len(field) as fields,
    {user} as user_id,
    {item} as item_id,
    {value} as value,
    {time} as time{event}
from split

-- name: parse
-- One row per event of a log: what it says, or the reason why it is none.
with named as (
    {named}
),
single as (
    select file_id, line_number, line, fields, user_id, {item} as item_id, {number} as value, time{kind}
    from named
),
trimmed as (  -- the conditions cost a quarter of trimming every id
    select
        file_id, line_number, line, fields, value, time{kind},
        if(ends_with(user_id, ' ') or ascii(user_id) <= 32, trim(user_id, ' ' || chr(9)), user_id) as user_id,
        if(ends_with(item_id, ' ') or ascii(item_id) <= 32, trim(item_id, ' ' || chr(9)), item_id) as item_id
    from single
),
typed as (
    select
        file_id, line_number, line, fields, value,
        if(contains(user_id, '.0') and regexp_full_match(user_id, '-?\d+\.0+'), split_part(user_id, '.', 1), user_id) as user_id,
        if(contains(item_id, '.0') and regexp_full_match(item_id, '-?\d+\.0+'), split_part(item_id, '.', 1), item_id) as item_id,
        {occurred_at} as occurred_at{kind}
    from trimmed
)
select
    file_id, line_number, line, user_id, item_id, value, occurred_at{kind},
    case
        when {damaged} then 'holds bytes that are not UTF-8, shown as U+FFFD'
        when fields = {fields} and ascii(user_id) > 32 and ascii(item_id) > 32 and isfinite(value)
            and not ({no_user}) and not ({no_item})
            and strlen(user_id) <= {longest_id} and strlen(item_id) <= {longest_id}
            and not ({below} or {above}) and (not {has_time} or {dated}) and not {spoilt} and not {unknown_kind}
            then null  -- the common case, cheaply
        when trim(line) = '' then 'blank'
        when {spoilt} then 'is part of a quoted field of several lines'
        when fields is null then '{malformed}'
        when fields <> {fields} then format('{} fields instead of {}', fields, {fields})
        when coalesce(user_id, '') = '' then 'names no user'
        when coalesce(item_id, '') = '' then 'names no item'
        when {no_user} then format('names no user: {} stands for a missing id (missing_ids)', user_id)
        when {no_item} then format('names no item: {} stands for a missing id (missing_ids)', item_id)
        when strlen(user_id) > {longest_id} then 'the user''s id is longer than {longest_id} bytes'
        when strlen(item_id) > {longest_id} then 'the item''s id is longer than {longest_id} bytes'
        when value is null then 'value is not a number'
        when not isfinite(value) then 'value is not finite'
        when {below} then 'value is below value_min = {value_min} of the data set''s file'
        when {above} then 'value is above value_max = {value_max} of the data set''s file'
        when {has_time} and occurred_at between {latest} and timestamp '9999-12-31 23:59:59.999999'
            then 'time is later than the clock by over max_future_days = {future_days} of the data set''s file'
        when {has_time} and not coalesce({dated}, false) then 'time is not a date or time in the form of the log'
        when {unknown_kind} then {kind_reason}
    end as reason
from typed

-- name: quoted_fields
-- One row: the fields of one line, some of them in quotes, as RFC 4180 has them; null where quotes do not pair.
case
    when not contains(line, '"') then string_split(line, {delimiter})
    when list_sum(list_transform(
        regexp_extract_all({delimiter} || line, {pattern}, 1), lambda f: len(f) + 1
    )) = len(line) + 1
    then list_transform(
        regexp_extract_all({delimiter} || line, {pattern}, 1),
        lambda f: if(starts_with(f, '"'), replace(f[2:-2], '""', '"'), f)
    )
end

-- name: headers
-- ingest_headers: one row per MOVIE: header of a batch, and one for the lines before the first header of each
-- file: the positions [first, stop) of its lines. movie is null if there is no header or
-- it cannot be read; a header that cannot be read is the first of the lines it spoils.
create or replace temp table ingest_headers as
with found as (
    select file_id, position as header, nullif(regexp_extract(line, '^\s*(\d+)\s*:\s*$', 1), '') as movie
    from ingest_lines
    where contains(line, ':') and not contains(line, ',')
),
starts as (
    select file_id, first_position - 1 as header, null::varchar as movie
    from ingest_files
),
all_of_them as (select * from found union all select * from starts)
select
    file_id, movie,
    greatest(first_position, header + (movie is not null)::int) as first,
    lead(header, 1, stop_position) over (partition by file_id order by header) as stop
from all_of_them
join ingest_files using (file_id)

-- name: netflix
-- One row per line of a Netflix Prize log that is no header: `user,stars,date`, under the header's movie.
-- A header applies to a range of lines. Ranges are cut into blocks of as many lines as a header has on
-- average, so that a line meets its header through a hash join, in parallel; carrying headers down with
-- a window is serial.
with blocks as (
    select first, stop, movie, unnest(range(first // {block}, (stop - 1) // {block} + 1)) as block
    from ingest_headers
    where first < stop
),
split as (
    select lines.file_id, lines.line_number, lines.line, blocks.movie, string_split(lines.line, ',') as field
    from ingest_lines as lines
    join blocks
        on lines.position // {block} = blocks.block
        and lines.position >= blocks.first
        and lines.position < blocks.stop
    where lines.line is not null
),
typed as (
    select
        file_id, line_number, line, movie,
        len(field) as fields,
        if(ends_with(field[1], ' ') or starts_with(field[1], ' '), trim(field[1], ' '), field[1]) as user_id,
        if(contains(field[2], '_'), null, try_cast(field[2] as double)) as value,  -- DuckDB reads 5_0 as 50
        try_cast(field[3] as timestamp) as occurred_at
    from split
)
select
    file_id, line_number, line, user_id, movie as item_id, value, occurred_at,
    case
        when {damaged} then 'holds bytes that are not UTF-8, shown as U+FFFD'
        when fields = 3 and movie is not null and ascii(user_id) > 32 and isfinite(value)
            and strlen(user_id) <= {longest_id} and {dated} and not ({below} or {above})
            then null  -- the common case, cheaply
        when trim(line) = '' then 'blank'
        when fields = 1 and contains(line, ':') then 'is no MOVIE: header, and spoils the lines below it'
        when movie is null then 'no readable MOVIE: header stands above it'
        when fields <> 3 then format('{} fields instead of 3', fields)
        when trim(user_id) = '' then 'names no user'
        when strlen(user_id) > {longest_id} then 'the user''s id is longer than {longest_id} bytes'
        when value is null then 'value is not a number'
        when not isfinite(value) then 'value is not finite'
        when {below} then 'value is below value_min = {value_min} of the data set''s file'
        when {above} then 'value is above value_max = {value_max} of the data set''s file'
        when occurred_at between {latest} and timestamp '9999-12-31 23:59:59.999999'
            then 'time is later than the clock by over max_future_days = {future_days} of the data set''s file'
        when not coalesce({dated}, false) then 'time is no date'
    end as reason
from typed

-- name: adjacency
-- One row per item of a line `user item item ...`, and one per line that cannot be read.
with split as (
    select file_id, line_number, line, {split} as field
    from ingest_lines
    where trim(line, ' ' || chr(9)) <> ''
),
read as (
    select
        file_id, line_number, line, field,
        case
            when {damaged} then 'holds bytes that are not UTF-8, shown as U+FFFD'
            when strlen(line) > {longest_id} and len(list_filter(field, lambda f: strlen(f) > {longest_id})) > 0
                then 'an id is longer than {longest_id} bytes'
        end as reason
    from split
)
select
    file_id, line_number, line,
    field[1] as user_id,
    unnest(case when reason is null then field[2:] else [null] end) as item_id,
    unnest(case when reason is null then range(1, len(field)) else [null] end)::integer as place,
    1::double as value,
    null::timestamp as occurred_at,
    reason
from read

-- name: counted_adjacency
-- One row per item of a line `count item item ...`, whose user is the line's number, and one per line that
-- cannot be read.
with split as (
    select file_id, line_number, line, {split} as field
    from ingest_lines
    where trim(line, ' ' || chr(9)) <> ''
),
read as (
    select
        file_id, line_number, line, field,
        case
            when {damaged} then 'holds bytes that are not UTF-8, shown as U+FFFD'
            when strlen(line) > {longest_id} and len(list_filter(field, lambda f: strlen(f) > {longest_id})) > 0
                then 'an id is longer than {longest_id} bytes'
            when not regexp_full_match(field[1], '\d+') or try_cast(field[1] as bigint) is null then 'does not begin with a count'
            when try_cast(field[1] as bigint) <> len(field) - 1
                then format('counts {} items, but {} follow', field[1], len(field) - 1)
        end as reason
    from split
)
select
    file_id, line_number, line,
    line_number::varchar as user_id,
    unnest(case when reason is null then field[2:] else [null] end) as item_id,
    unnest(case when reason is null then range(1, len(field)) else [null] end)::integer as place,
    1::double as value,
    null::timestamp as occurred_at,
    reason
from read

-- name: parquet
-- One row per row of a Parquet log: its columns by their roles. Rows are numbered by the reader; in their order where the log
-- has a column of that name itself, which the reader refuses.
select
    {file_id} as file_id,
    {row_number} as line_number,
    to_json(log)::varchar as line,
    1 as fields,
    {user} as user_id,
    {item} as item_id,
    {value} as value,
    {time} as time{event}
from read_parquet({path}, file_row_number = {numbered}, hive_partitioning = false) as log

-- name: events
-- raw.events: one row per line (per item of an adjacency line) that could be read.
insert into raw.events by name
select user_id, item_id, value, occurred_at, file_id, line_number{kind}
from ({parsed}) as parsed
where reason is null

-- name: places
-- raw.places: one row per item of a line that could be read, with its place in the line.
insert into raw.places
select file_id, line_number, place, item_id
from ({parsed}) as parsed
where reason is null

-- name: rejects
-- raw.rejects: one row per line that is no event; of a long one its beginning. (`coalesce` keeps DuckDB from pushing the
-- condition into the parsing, which fails over its lambdas.)
insert into raw.rejects
select file_id, line_number, left(line, 1000), reason
from ({parsed}) as parsed
where coalesce(reason, 'blank') <> 'blank'

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
    path, sha256, bytes, events, rejects, coalesce(content_sha256, sha256) as content_sha256,
    coalesce(names_columns, false) as names_columns
from operations.log_files
order by file_id

-- name: counts
-- One row per log of $file_ids with events or rejects: how many, of how many lines, and the first reject's line and
-- reason. Lines of an adjacency list hold many events each, so the last line number bounds a log's lines.
with events as (
    select file_id, count(*) as events, max(line_number) as last_line
    from raw.events
    where file_id in $file_ids
    group by file_id
),
rejects as (
    select file_id, count(*) as rejects, min(line_number) as first_line, arg_min(reason, line_number) as first_reason
    from raw.rejects
    where file_id in $file_ids
    group by file_id
)
select
    file_id,
    coalesce(events, 0) as events,
    coalesce(rejects, 0) as rejects,
    coalesce(rejects, 0) + coalesce(least(events, last_line), 0) as lines,
    first_line,
    first_reason
from events
full join rejects using (file_id)

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
