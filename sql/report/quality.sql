-- One row per night of the last 30 up to a run's, oldest first: a metric of the list that stood as published after its
-- last run, null where that run did not evaluate it; of the best list where nothing was decided about publishing. The
-- night of a run that took the events up to a day is that day, so that history which is replayed is a line too.
with runs as (
    select
        run_id,
        place,
        coalesce(try_cast(settings ->> 'until' as date), started_at::date) as night
    from operations.evaluated_runs
    where place <= (select rowid from operations.runs where run_id = $run_id)
    qualify row_number() over (partition by night order by place desc) = 1
), stood as (
    select
        run_id,
        case when promoted then challenger else champion end as list
    from operations.promotions
), lists as (
    select
        run_id,
        night,
        model || '/' || score as list,
        value,
        standard_error
    from evaluation.metrics
    join runs using (run_id)
    where protocol = $protocol and metric = $metric
), nights as (
    select
        night,
        coalesce(stood.list, lists.list) as list,
        case when coalesce(stood.list = lists.list, true) then value end as value,
        case when coalesce(stood.list = lists.list, true) then standard_error end as standard_error
    from lists
    left join stood using (run_id)
    where night <= (select night from runs where run_id = $run_id)
    qualify row_number() over (
        partition by night order by (lists.list = stood.list) desc nulls last, lists.value desc, lists.list
    ) = 1
    order by night desc
    limit 30
)
from nights
order by night
