-- name: files
-- join_files: one row per lines file whose events are written: the new ones, and those with lines of new orders.
create or replace temp table join_files as
select distinct file_id
from raw.parts
where part = 'lines'
    and (
        $every_file
        or file_id in $file_ids
        or key in (select key from raw.parts where part = 'orders' and file_id in $file_ids)
    )

-- name: events
-- raw.events: one row per line with an order. Of a repeated order the first counts.
insert into raw.events by name
with orders as (
    select key, id as user_id, value, occurred_at, event
    from raw.parts
    where part = 'orders'
    qualify row_number() over (partition by key order by file_id, line_number) = 1
)
select
    orders.user_id,
    lines.id as item_id,
    {value} as value,
    {time} as occurred_at,
    lines.file_id,
    lines.line_number,
    coalesce(lines.event, orders.event) as event
from raw.parts as lines
join orders using (key)
where lines.part = 'lines' and lines.file_id in (from join_files)
order by lines.file_id, lines.line_number

-- name: repeats
-- raw.rejects: one row per order that an earlier line has.
insert into raw.rejects
with numbered as (
    select
        key, file_id, line_number,
        first_value(file_id) over earliest as first_file,
        first_value(line_number) over earliest as first_line
    from raw.parts
    where part = 'orders'
    window earliest as (partition by key order by file_id, line_number)
)
select
    file_id, line_number, key,
    format('repeats the order {} of line {}', key, first_line)
    || if(file_id = first_file, '', format(' of file {} (operations.log_files)', first_file))
from numbered
where (file_id, line_number) <> (first_file, first_line)

-- name: counts
-- operations.log_files: one row per joined file, with its counts, which later files change.
update operations.log_files as files
set
    events = (select count(*) from raw.events as events where events.file_id = files.file_id),
    rejects = (select count(*) from raw.rejects as rejects where rejects.file_id = files.file_id)
where file_id in (select file_id from raw.parts)

-- name: waiting
-- One row per part with lines that have no partner: how many, and the key, path and number of the first.
select
    part, count(*) as lines,
    first(key order by file_id, line_number),
    first(path order by file_id, line_number),
    first(line_number order by file_id, line_number)
from raw.parts as parts
join operations.log_files using (file_id)
where not exists (select 1 from raw.parts as others where others.key = parts.key and others.part <> parts.part)
group by part
order by part

-- name: unmatched
-- raw.rejects: one row per line without an order or order without a line, in a preview.
insert into raw.rejects
select file_id, line_number, key, if(part = 'lines', 'its order is in none of the files', 'its lines are in none of the files')
from raw.parts as parts
where not exists (select 1 from raw.parts as others where others.key = parts.key and others.part <> parts.part)
