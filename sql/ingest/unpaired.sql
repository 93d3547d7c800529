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
