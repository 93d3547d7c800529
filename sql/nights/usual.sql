-- {table}: one row per figure of `night_figures`, with what is usual for it: the median of the same weekday's nights,
-- where there are $weekdays of them, moved by how the last $nights nights lay about their own weekdays' medians. The
-- spread is that of these nights: 1.4826 times the median absolute deviation, which for normal values is their standard
-- deviation. Before weekdays are told apart it also covers all but the outer tenths of the nights, so that weekends do
-- not stand out.
insert into {table}
with known as (
    select
        figure,
        night,
        if(nights.in_ratio, ln(nights.value), nights.value) as x
    from operations.complete_nights
    join {table} as nights using (night, run_id)
    where night < $night and (nights.value > 0 or not nights.in_ratio)
), history as (
    select
        *,
        row_number() over (partition by figure order by night desc) as place,
        median(x) over (partition by figure) as level
    from known
    where x is not null
    qualify place <= $history
), weekdays as (
    select figure, dayofweek(night) as weekday, median(x) as of_weekday
    from history
    group by figure, weekday
    having count(*) >= $weekdays
), apart as (
    select
        history.figure,
        tonight.of_weekday as of_tonight,
        if(tonight.of_weekday is null, x, x - coalesce(weekdays.of_weekday, level)) as x
    from history
    left join weekdays on weekdays.figure = history.figure and weekdays.weekday = dayofweek(night)
    left join weekdays as tonight on tonight.figure = history.figure and tonight.weekday = dayofweek($night::date)
    where place <= $nights
), judged as (
    select
        figure,
        coalesce(any_value(of_tonight), 0) + median(x) as usual,
        greatest(
            1.4826 * mad(x),
            if(any_value(of_tonight) is null, (quantile_cont(x, 0.9) - quantile_cont(x, 0.1)) / 2.5631, 0)
        ) as spread,
        count(*) as compared_with
    from apart
    group by figure
)
select
    $run_id,
    $night,
    figure,
    value,
    in_ratio,
    if(compared_with >= $least, if(in_ratio, exp(usual), usual), null),
    if(compared_with >= $least, spread, null),
    coalesce(compared_with, 0)
from night_figures
left join judged using (figure)
