-- operations.stage_results: one row per stage that keeps what it made: the digest of all that its tables were made from,
-- a digest of their rows, and what the stage returned.
create table if not exists operations.stage_results (
    stage varchar not null,
    made_from varchar not null,
    made varchar not null,
    result json not null
);
