-- operations.model_settings: one row per run and model that has settings to search: where its settings come from, and
-- for those that were searched for, in this run or in an earlier one, what that found.
create table if not exists operations.model_settings (
    run_id varchar not null,
    model varchar not null,
    origin varchar not null,
    reason varchar not null,
    protocol varchar,
    searched_on date,
    metric varchar,
    trials integer,
    seconds double,
    at_start double,
    reached double,
    standard_error double,
    users bigint,
    items bigint,
    edges bigint,
    key varchar,
    settings json not null
);
