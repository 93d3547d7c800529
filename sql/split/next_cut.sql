-- One row: the day from which on about so large a share of {edges} first appeared, null where none has a time.
select quantile_disc(first_at::date, 1 - $share) as next_from from {edges}
