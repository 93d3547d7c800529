-- One row per line of a Netflix Prize log that is no header: `user,stars,date`, under the header's movie.
-- A header speaks for a range of lines. Ranges are cut into blocks of as many lines as a header has on
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
        field[1] as user_id,
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
        when not coalesce({dated}, false) then 'time is no date'
    end as reason
from typed
