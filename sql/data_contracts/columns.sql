-- One row per column that is not as its contract declares it; nulls on the side that lacks it.
with
    declared (column_name, data_type, is_nullable) as (values {declared}),
    found as (
        select column_name, column_type as data_type, "null" = 'YES' as is_nullable from (describe {table})
    )
select
    column_name,
    declared.data_type as declared_type, declared.is_nullable as declared_nullable,
    found.data_type as found_type, found.is_nullable as found_nullable
from declared full join found using (column_name)
where (declared.data_type, declared.is_nullable) is distinct from (found.data_type, found.is_nullable)
/* asked of the catalogue, not of {batch} */
