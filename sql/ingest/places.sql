-- raw.places: one row per item of a line that could be read, with its place in the line.
insert into raw.places
select file_id, line_number, place, item_id
from ({parsed}) as parsed
where reason is null
