-- One row per night of the last 30 up to a run's, oldest first: the events that the landing folder brought, and how many
-- are usual.
with last as (
    select max(night) as night from operations.nights where run_id = $run_id
), brought as (
    select
        night,
        value,
        usual
    from operations.nights as nights
    where figure = 'events'
        and value is not null
        and (nights.run_id = $run_id
            or run_id in (from (select run_id from operations.complete_nights) where night < (select night from last)))
    order by night desc
    limit 30
)
from brought
order by night
