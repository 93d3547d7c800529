-- raw.rejects: one row per line that could not be read; of a long one its beginning.
insert into raw.rejects
select file_id, line_number, left(line, 1000), reason
from ({parsed}) as parsed
where reason <> 'blank'
