-- operations.evaluations: one row per run and protocol that was evaluated whole: what its rows in the `evaluation` tables
-- were made from, and a digest of them, so that a run of the same fits takes them.
create table if not exists operations.evaluations (
    run_id varchar not null, -- the run whose rows they are
    protocol varchar not null, -- how users and edges were held out
    made_from varchar not null, -- digest of the split, the fits, the source and the libraries
    rows varchar not null, -- digest of the rows without their run
    result json not null -- what the stage returned
);
