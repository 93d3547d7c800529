-- name: completed_since
-- One row: the newest run of a flow that began after a moment and was completed; no row if none was. A start in the
-- future is that of a clock that was ahead, and says nothing.
select run_id
from operations.runs
where state in ('completed', 'partly_failed')
  and flow = $flow
  and started_at > $moment
  and started_at <= $latest
order by started_at desc
limit 1

-- name: backfilled_until
-- One row per completed backfill that took the events up to the end of a day, in the order in which they were recorded,
-- but for those whose events have changed since: a later run read in a log with events from before that day, or took
-- events away.
with arrived as (
    select
        runs.rowid as place,
        max(arrivals.events_before) > 0 as took_away,
        min(events.occurred_at)::date as first_day
    from operations.arrivals
    join operations.runs using (run_id)
    left join raw.events using (file_id)
    group by runs.rowid, arrivals.name
)

select
    run_id,
    (settings ->> 'until')::date as day,
    settings
from operations.runs
where flow = 'backfill'
  and state = 'completed'
  and settings ->> 'until' is not null
  and not exists (
      from arrived
      where arrived.place > runs.rowid and (took_away or first_day <= (runs.settings ->> 'until')::date)
  )
order by runs.rowid
