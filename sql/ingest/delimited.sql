-- One row per line of a log of delimited fields, its header left out: the event that it tells of, or why
-- there is none.
with split as (
    select file_id, line_number, line, {split} as field
    from ingest_lines
    where line is not null and line_number > {header_lines}
),
named as (
    select
        file_id, line_number, line,
        len(field) as fields,
        {user} as user_id,
        {item} as item_id,
        if(contains({value}, '_'), null, try_cast({value} as double)) as value,  -- DuckDB reads 5_0 as 50
        {time} as time,
        if(regexp_matches({time}, '[_xXbB]'), null, try_cast({time} as bigint)) as seconds  -- and 0x10 as 16
    from split
),
typed as (
    select
        *,
        case
            when seconds between 0 and 253402300799 then make_timestamp(seconds * 1000000)
            else try_cast(time as timestamp)
        end as occurred_at
    from named
)
select
    file_id, line_number, line, user_id, item_id, value, occurred_at,
    case
        when {damaged} then 'holds bytes that are not UTF-8, shown as U+FFFD'
        when fields = {fields} and ascii(user_id) > 32 and ascii(item_id) > 32 and isfinite(value)
            and strlen(user_id) <= {longest_id} and strlen(item_id) <= {longest_id}
            and not ({below} or {above}) and (not {has_time} or {dated}) and not {spoilt}
            then null  -- the common case, cheaply
        when trim(line) = '' then 'blank'
        when {spoilt} then 'is part of a quoted field of several lines'
        when fields is null then 'quotes do not pair'
        when fields <> {fields} then format('{} fields instead of {}', fields, {fields})
        when trim(user_id) = '' then 'names no user'
        when trim(item_id) = '' then 'names no item'
        when strlen(user_id) > {longest_id} then 'the user''s id is longer than {longest_id} bytes'
        when strlen(item_id) > {longest_id} then 'the item''s id is longer than {longest_id} bytes'
        when value is null then 'value is not a number'
        when not isfinite(value) then 'value is not finite'
        when {below} then 'value is below value_min = {value_min} of the data set''s file'
        when {above} then 'value is above value_max = {value_max} of the data set''s file'
        when {has_time} and not coalesce({dated}, false)
            then 'time is neither a date nor seconds since 1970'
    end as reason
from typed
