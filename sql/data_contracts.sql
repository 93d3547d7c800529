-- name: columns
-- One row per column of a table, temporary tables included: its table as contracts name it, its name and its type.
select
    if(schema_name = 'main', '', schema_name || '.') || table_name as table_name,
    column_name,
    data_type || if(is_nullable, '', ' not null') as type
from duckdb_columns()
where database_name in (current_database(), 'temp')
order by table_name, column_index
