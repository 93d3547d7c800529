-- ingest_text: one row per line of the logs of a batch, in their order; null where a line is blank.
-- No delimiter, quote or escape: the reader takes a line as it stands. Row ids follow the lines.
create or replace temp table ingest_text as
select line, file_index
from read_csv(
    $paths,
    columns = {'line': 'VARCHAR'}, auto_detect = false, header = false,
    delim = '', quote = '', escape = '', comment = '',
    compression = $compression, max_line_size = $longest, buffer_size = $buffer
)
