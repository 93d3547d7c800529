-- One row: how many rows break a rule. Counting none takes less time than sorting none.
select count(*) from (
{query}
)
