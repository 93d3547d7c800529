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
-- operations.search_trials: one row per trial of a search that a run made for a model's settings, in their order; the last
-- two may be the initial and the best settings again, on a larger sample.
create table if not exists operations.search_trials (
    run_id varchar not null, -- the run in operations.runs that made the search
    model varchar not null, -- the model's name
    number integer not null, -- from 1
    edges bigint not null, -- training edges that it was fitted on
    state varchar not null, -- done, pruned or failed
    value double, -- the search's metric; null where the trial failed
    standard_error double, -- of the value, over validation users
    score varchar not null, -- the model's score with this value; empty where the trial did not end
    seconds double not null, -- wall time of its fit
    settings json not null, -- all settings of the fit
    note varchar not null -- why it was stopped or failed; else empty
);
