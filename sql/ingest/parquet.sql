-- One row per row of a Parquet log: the event that it tells of, or why there is none. Rows are numbered by the
-- reader; in their order where the log has a column of that name itself, and the reader refuses.
with named as (
    select
        {file_id} as file_id,
        {row_number} as line_number,
        to_json(log)::varchar as line,
        {user}::varchar as user_id,
        {item}::varchar as item_id,
        if(typeof({value}) = 'VARCHAR' and contains({value}::varchar, '_'), null, try_cast({value} as double)) as value,
        {time}::varchar as time,
        if(regexp_matches({time}::varchar, '[_xXbB]'), null, try_cast({time}::varchar as bigint)) as seconds
    from read_parquet({path}, file_row_number = {numbered}, hive_partitioning = false) as log
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
        when coalesce(trim(user_id), '') = '' then 'names no user'
        when coalesce(trim(item_id), '') = '' then 'names no item'
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
