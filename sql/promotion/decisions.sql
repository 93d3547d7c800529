-- One row per decision on what is published, newest first; of one run alone where it is named.
select *
from operations.promotions
where $run_id is null or run_id = $run_id
order by rowid desc
limit $rows
