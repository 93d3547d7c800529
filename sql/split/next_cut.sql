-- One row: the day from which on about a tenth of the edges first appeared, null where no edge has a time.
select quantile_disc(first_at::date, 1 - $share) as next_from from indexed.interactions
