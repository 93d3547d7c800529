-- operations.log_files: one row per log file that was ingested, known by the digest of its bytes.
create schema if not exists operations;
create table if not exists operations.log_files (
    file_id bigint not null,
    path varchar not null,
    sha256 varchar not null,
    bytes bigint not null,
    events bigint not null,
    rejects bigint not null,
    ingested_at timestamp not null,
    content_sha256 varchar, -- of what it holds, once unpacked and in UTF-8; null where an older version read it in
    names_columns boolean -- whether it says itself which column is which; null where an older version read it in
);
-- operations.runs: one row per run of a flow.
create table if not exists operations.runs (
    run_id varchar not null, -- that of the flow run in Prefect
    flow varchar not null, -- its name
    dataset varchar not null, -- the data set's name
    started_at timestamp not null, -- in UTC
    ended_at timestamp, -- in UTC; null while it runs
    state varchar not null, -- running, completed, partly_failed, failed, cancelled or crashed
    settings json not null, -- all settings that decide the run's numbers
    code_version varchar not null -- the package's, with the commit where it runs from a checkout
);
-- operations.contract_results: one row per rule of a contract checked in a run.
create table if not exists operations.contract_results (
    run_id varchar not null, -- the run in operations.runs
    stage varchar not null, -- the stage that the contract closes
    contract varchar not null, -- the table that it is about
    rule varchar not null, -- the rule's name
    severity varchar not null, -- error, which stops the run, or warning
    success boolean not null, -- whether it was kept
    observed varchar, -- what was found, in words
    samples json -- some rows that broke it
);
-- operations.model_fits: one row per model fitted in a run, once a protocol.
create table if not exists operations.model_fits (
    run_id varchar not null,
    protocol varchar not null,
    model varchar not null,
    digest varchar not null,
    seconds double not null,
    peak_bytes bigint not null,
    saved_bytes bigint not null
);
-- operations.attribute_tables: one row per version of a table of attributes that was read.
create table if not exists operations.attribute_tables (
    side varchar not null, -- item or user
    path varchar not null, -- its file
    sha256 varchar not null, -- digest of the file's bytes
    rows bigint not null, -- its ids
    columns varchar[] not null, -- its columns but the ids
    types varchar[] not null, -- the type of each
    separator varchar not null, -- of the names in a cell of the type categories
    max_missing_share double not null, -- a feature with a larger share of empty cells is warned of
    run_id varchar not null, -- the run that read it
    is_current boolean not null -- whether raw.attributes has its cells
);
-- operations.arrivals: one row per log that a run read in, whose name went over to other bytes, or that was set aside.
create table if not exists operations.arrivals (
    run_id varchar not null,
    arrived_at timestamp not null default (now() at time zone 'UTC'),
    name varchar not null,
    path varchar not null,
    outcome varchar not null,
    file_id bigint,
    sha256 varchar,
    events bigint not null,
    rejects bigint not null,
    events_before bigint not null,
    rejects_before bigint not null,
    reason varchar
);
-- operations.promotions: one row per decision on what stands as published, by a run of all stages or by hand.
create table if not exists operations.promotions (
    run_id varchar not null,
    decided_at timestamp not null,
    champion varchar,
    challenger varchar not null,
    metric varchar,
    difference double,
    standard_error double,
    margin double not null,
    promoted boolean not null,
    reason varchar not null
);
-- operations.nights: one row per figure of what a night (the date in UTC on which its runs began) brought, and run.
create table if not exists operations.nights (
    run_id varchar not null,
    night date not null,
    figure varchar not null,
    value double,
    in_ratio boolean not null,
    usual double,
    spread double,
    compared_with bigint not null,
    usual_from double,
    usual_to double
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
-- operations.stage_results: one row per stage that keeps what it made: the digest of all that its tables were made from,
-- a digest of their rows, and what the stage returned; and one per evaluation and choice of a blend.
create table if not exists operations.stage_results (
    stage varchar not null, -- the stage's name, with its protocol
    made_from varchar not null, -- digest of the rows, settings, source and libraries that its tables depend on
    made varchar not null, -- digest of its tables' rows; empty without tables
    result json not null -- what the stage returned
);
-- operations.model_settings: one row per run and model that has settings to search: where these come from.
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
-- operations.search_trials: one row per trial of a search that a run made for a model's settings, in their order.
create table if not exists operations.search_trials (
    run_id varchar not null, -- the run in operations.runs that made the search
    model varchar not null, -- the model's name
    number integer not null, -- from 1
    edges bigint not null, -- training edges that it was fitted on
    state varchar not null, -- done, pruned or failed
    value double, -- the search's metric; null where the trial failed
    standard_error double, -- of the value, over validation users
    score varchar not null, -- the model's score with this value; empty where the trial did not end
    seconds double not null, -- its wall time
    settings json not null, -- all settings of the fit
    note varchar not null -- why it was stopped or failed; else empty
);
-- operations.funnel: one row per step from the lines of all logs to the edges of the observed graph in a run.
create table if not exists operations.funnel (
    run_id varchar not null,
    step integer not null,
    unit varchar not null,
    reason varchar not null,
    lost bigint not null,
    remaining bigint not null,
    users bigint,
    items bigint
);
-- operations.publications: one row per publication that the home keeps, with a copy of its manifest, from which a damaged one
-- is restored.
create table if not exists operations.publications (
    run_id varchar not null, -- the run that made it
    manifest varchar not null, -- the text of its `manifest.json`
    is_current boolean not null -- whether `published` points to it
);
-- operations.alarms: one row per thing that a run found damaged or wrong in the home, and what it did about it.
create table if not exists operations.alarms (
    run_id varchar not null, -- the run that found it
    alarm varchar not null -- what was wrong, and what was done
);
-- operations.schema_version: one row per version of the tables that this warehouse has had; each with the digest of the
-- statements that last made what was absent.
create table if not exists operations.schema_version (
    version integer not null,
    applied_at timestamp not null, -- in UTC
    statements varchar
);
