-- One row per row that a rule's query found, the first {samples} of them, each with how many there are in all.
with breaches as materialized (
    {query}
)
select (select count(*) from breaches) as breaches_found, *
from breaches
order by all
limit {samples}
