-- One row per row of a Parquet log: the event that it tells of, or why there is none.
with named as (
    select
        {file_id} as file_id,
        file_row_number + 1 as line_number,
        to_json(log)::varchar as line,
        {user}::varchar as user_id,
        {item}::varchar as item_id,
        try_cast({value} as double) as value,
        {time}::varchar as time,
        try_cast({time}::varchar as bigint) as seconds
    from read_parquet({path}, file_row_number = true) as log
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
        when value is null then 'value is not a number'
        when not isfinite(value) then 'value is not finite'
        when {below} then 'value is below value_min = {value_min} of the data set''s file'
        when {above} then 'value is above value_max = {value_max} of the data set''s file'
        when {has_time} and not coalesce(isfinite(occurred_at), false)
            then 'time is neither a date nor seconds since 1970'
    end as reason
from typed
