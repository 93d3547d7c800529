-- operations.nights: one row per figure of what a night brought, and run that read its landing folder. A night is the
-- date, in UTC, on which its run began; runs of one date are one night. `usual` and `spread` are those of the nights
-- before, where there are enough: `spread` is a standard deviation of the values, or of their logarithms where nights
-- are `in_ratio`.
create table if not exists operations.nights (
    run_id varchar not null,
    night date not null,
    figure varchar not null,
    value double,
    in_ratio boolean not null,
    usual double,
    spread double,
    compared_with bigint not null
);
-- operations.complete_nights: one row per night that came to its end, with the last run that completed it.
create or replace view operations.complete_nights as
select
    night,
    max_by(run_id, runs.rowid) as run_id
from (select distinct run_id, night from operations.nights) as nights
join operations.runs using (run_id)
where state in ('completed', 'partly_failed')
group by night;
-- diagnostics.nightly_exponents: one row per run and side: the exponent of its degrees' power law, beside what was
-- usual, with the columns of operations.nights.
create table if not exists diagnostics.nightly_exponents (
    run_id varchar not null,
    night date not null,
    figure varchar not null,
    value double,
    in_ratio boolean not null,
    usual double,
    spread double,
    compared_with bigint not null
)
