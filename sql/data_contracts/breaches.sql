-- One row per row that breaks a rule, the first {samples} of them, the same ones every time.
select * from (
{query}
)
order by all
limit {samples}
