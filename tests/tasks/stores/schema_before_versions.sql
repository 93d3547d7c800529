-- raw.events: one row per line of a log (per item of an adjacency line), as read, before any rule.
create schema if not exists raw;
create table if not exists raw.events (
    user_id varchar not null,
    item_id varchar not null,
    value double not null,
    occurred_at timestamp,
    file_id bigint not null,
    line_number bigint not null
);
-- raw.rejects: one row per line that could not be read, with the reason.
create table if not exists raw.rejects (
    file_id bigint not null,
    line_number bigint not null,
    line varchar,
    reason varchar not null
);
-- operations.log_files: one row per log file that was ingested, known by the digest of its bytes.
create schema if not exists operations;
create table if not exists operations.log_files (
    file_id bigint not null,
    path varchar not null,
    sha256 varchar not null,
    bytes bigint not null,
    events bigint not null,
    rejects bigint not null,
    ingested_at timestamp not null
);
-- operations.runs: one row per run of a flow.
create table if not exists operations.runs (
    run_id varchar not null,
    flow varchar not null,
    dataset varchar not null,
    started_at timestamp not null,
    ended_at timestamp,
    state varchar not null,
    settings json not null,
    code_version varchar not null
);
-- operations.contract_results: one row per rule of a contract checked in a run.
create table if not exists operations.contract_results (
    run_id varchar not null,
    stage varchar not null,
    contract varchar not null,
    rule varchar not null,
    severity varchar not null,
    success boolean not null,
    observed varchar,
    samples json
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
-- curated.interactions: one row per edge of the observed graph G, a (user, item) pair that is liked.
create schema if not exists curated;
create table if not exists curated.interactions (
    user_id varchar not null,
    item_id varchar not null,
    user_index integer not null,
    item_index integer not null,
    event_count integer not null,
    first_at timestamp,
    last_at timestamp,
    first_file_id bigint not null,
    first_line bigint not null
);
-- splits.strong_generalization: one row per edge of a user that the protocol keeps.
create schema if not exists splits;
create table if not exists splits.strong_generalization (
    user_id varchar not null,
    item_id varchar not null,
    part varchar not null,
    role varchar not null
);
-- splits.leave_one_out: one row per curated edge.
create table if not exists splits.leave_one_out (
    user_id varchar not null,
    item_id varchar not null,
    role varchar not null
);
-- splits.given: one row per edge of the train and test files that a data set comes with.
create table if not exists splits.given (
    user_id varchar not null,
    item_id varchar not null,
    role varchar not null
);
-- diagnostics.degrees: one row per side and degree that occurs in the observed graph.
create schema if not exists diagnostics;
create table if not exists diagnostics.degrees (
    side varchar not null,
    degree bigint not null,
    vertices bigint not null
);
-- diagnostics.power_law_fits: one row per side and family of laws fitted to its degrees. A null
-- cutoff is infinite; log_normal keeps (mu, sigma) in (exponent, cutoff), exponential (null, 1 / rate).
create table if not exists diagnostics.power_law_fits (
    side varchar not null,
    family varchar not null,
    exponent double,
    cutoff double,
    d_min bigint not null,
    d_max bigint not null,
    log_likelihood double not null,
    aic double not null,
    ks double not null,
    p_value double
);
-- diagnostics.hidden_graph_ratios: one row per rate r and item of a hidden graph sampled around the
-- observed one: its edges that are in the observed graph, and those that were sampled.
create table if not exists diagnostics.hidden_graph_ratios (
    r double not null,
    item_index integer not null,
    positives bigint not null,
    negatives bigint not null
);
-- evaluation.metrics: one row per run, protocol, model, score and metric: its mean over users.
create schema if not exists evaluation;
create table if not exists evaluation.metrics (
    run_id varchar not null,
    protocol varchar not null,
    model varchar not null,
    score varchar not null,
    metric varchar not null,
    value double not null,
    standard_error double,
    users bigint not null
);
-- evaluation.comparisons: one row per run, protocol, metric and pair of ranked lists, user by user:
-- the difference is that of model minus other_model.
create table if not exists evaluation.comparisons (
    run_id varchar not null,
    protocol varchar not null,
    metric varchar not null,
    model varchar not null,
    score varchar not null,
    other_model varchar not null,
    other_score varchar not null,
    difference double not null,
    standard_error double,
    p_value double,
    users bigint not null
);
-- evaluation.ranks_by_degree: one row per run, model, score, side and log-spaced bin of training
-- degrees, both ends of the bin included.
create table if not exists evaluation.ranks_by_degree (
    run_id varchar not null,
    model varchar not null,
    score varchar not null,
    side varchar not null,
    degree_low bigint not null,
    degree_high bigint not null,
    edges bigint not null,
    mean_rank double not null,
    p05 double not null,
    p25 double not null,
    p50 double not null,
    p75 double not null,
    p95 double not null
);
-- evaluation.ranks_by_both_degrees: one row per run, model, score and pair of log-spaced bins of the
-- training degrees of a held-out edge's user and item, both ends of a bin included.
create table if not exists evaluation.ranks_by_both_degrees (
    run_id varchar not null,
    model varchar not null,
    score varchar not null,
    user_degree_low bigint not null,
    user_degree_high bigint not null,
    item_degree_low bigint not null,
    item_degree_high bigint not null,
    edges bigint not null,
    mean_rank double not null
);
-- evaluation.like_by_degree: one row per run, model and bin of user training degrees, both ends included
-- (1 to 40 one by one, then log-spaced): how the held-out edges' like probabilities are spread. `error` is
-- the share below one half; `histogram` counts them in twenty bins of equal width from 0 to 1.
create table if not exists evaluation.like_by_degree (
    run_id varchar not null,
    model varchar not null,
    degree_low bigint not null,
    degree_high bigint not null,
    edges bigint not null,
    error double not null,
    histogram bigint[] not null
);
-- evaluation.calibration: one row per run, model, reference and bin of the like probability: what the
-- model says of the pairs in the bin on average, and what the reference says of the same pairs.
create table if not exists evaluation.calibration (
    run_id varchar not null,
    model varchar not null,
    reference varchar not null,
    like_low double not null,
    like_high double not null,
    pairs bigint not null,
    mean_like double not null,
    observed double not null,
    standard_error double
);
-- evaluation.beyond_accuracy: one row per run, protocol, model, score and metric of the test users'
-- first recommendations; over users, or of all lists together where the standard error is null.
create table if not exists evaluation.beyond_accuracy (
    run_id varchar not null,
    protocol varchar not null,
    model varchar not null,
    score varchar not null,
    metric varchar not null,
    value double not null,
    standard_error double,
    users bigint not null
);
-- evaluation.sweeps: one row per sweep, refit (its settings as JSON), protocol, score, bin of user training
-- degrees (null over all users) and metric. `seconds` is the wall time of the fit.
create table if not exists evaluation.sweeps (
    sweep varchar not null,
    swept_at timestamp not null,
    protocol varchar not null,
    model varchar not null,
    settings varchar not null,
    score varchar not null,
    degree_low bigint,
    degree_high bigint,
    metric varchar not null,
    value double not null,
    standard_error double,
    users bigint not null,
    seconds double not null
);
-- published.recommendations: one row per user and rank, best first.
create schema if not exists published;
create table if not exists published.recommendations (
    user_id varchar not null,
    item_id varchar not null,
    rank integer not null,
    score double not null,
    like_mean double,
    like_sd double
);
-- operations.evaluated_runs: one row per completed run that evaluated anything. Whatever asks for the last run, or the
-- one before this, asks here: a tune, a sweep or a run that failed has no evaluation that another can be held against.
create or replace view operations.evaluated_runs as
select *
from operations.runs
where state = 'completed' and exists (from evaluation.metrics where metrics.run_id = runs.run_id)
