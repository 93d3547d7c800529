-- One row at most: the last evaluated run of the data set before this one.
select
    earlier.run_id,
    earlier.started_at,
    earlier.code_version
from operations.evaluated_runs as earlier
join operations.runs as this using (dataset)
where this.run_id = $run_id and earlier.place < this.rowid
order by earlier.place desc
limit 1
