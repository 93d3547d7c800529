-- operations.stage_results: one row per stage that keeps what it made: the digest of all that its tables were made from,
-- a digest of their rows, and what the stage returned.
create table if not exists operations.stage_results (
    stage varchar not null, -- the stage's name
    made_from varchar not null, -- digest of the rows, settings, source and libraries that its tables depend on
    made varchar not null, -- digest of the rows that it made
    result json not null -- what the stage returned
);
