-- One row per item of a line `user item item ...`, and one per line that cannot be read.
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
