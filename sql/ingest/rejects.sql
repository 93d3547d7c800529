-- raw.rejects: one row per line that is no event; of a long one its beginning. (`coalesce` keeps DuckDB from pushing the
-- condition into the parsing, which fails over its lambdas.)
insert into raw.rejects
select file_id, line_number, left(line, 1000), reason
from ({parsed}) as parsed
where coalesce(reason, 'blank') <> 'blank'
