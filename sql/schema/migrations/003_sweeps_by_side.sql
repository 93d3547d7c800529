-- evaluation.sweeps: one row per sweep, refit, protocol, score, side, bin of training degrees and metric. Rows of before
-- have no side: their bins are of users.
alter table if exists evaluation.sweeps add column if not exists side varchar;
