-- One row per item of a line `count item item ...`, whose user is the line's number, and one per line that
-- cannot be read.
with split as (
    select file_id, line_number, line, string_split_regex(trim(line, ' ' || chr(9)), '[ \t]+') as field
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
