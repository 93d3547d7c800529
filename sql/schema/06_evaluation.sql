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
-- evaluation.comparisons: one row per run, protocol, metric and pair of ranked lists, compared user by user.
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
    users bigint not null,
    adjusted_p_value double
);
-- evaluation.ranks_by_degree: one row per run, model, score, side and log-spaced bin of training degrees.
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
-- evaluation.ranks_by_both_degrees: one row per run, model, score and pair of log-spaced bins of training degrees.
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
-- evaluation.like_by_degree: one row per run, model and bin of user training degrees.
create table if not exists evaluation.like_by_degree (
    run_id varchar not null,
    model varchar not null,
    degree_low bigint not null,
    degree_high bigint not null,
    edges bigint not null,
    error double not null,
    histogram bigint[] not null
);
-- evaluation.dislike_by_degree: one row per run, model and bin of user training degrees, of considered items.
create table if not exists evaluation.dislike_by_degree (
    run_id varchar not null,
    model varchar not null,
    degree_low bigint not null,
    degree_high bigint not null,
    edges bigint not null,
    error double not null,
    histogram bigint[] not null
);
-- evaluation.calibration: one row per run, model, reference and bin of the like probability.
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
-- evaluation.considered: one row per run, protocol, model and metric of held-out items that users considered.
create table if not exists evaluation.considered (
    run_id varchar not null,
    protocol varchar not null,
    model varchar not null,
    metric varchar not null,
    value double not null,
    standard_error double,
    likes bigint not null,
    dislikes bigint not null
);
-- evaluation.beyond_accuracy: one row per run, protocol, model, score and metric of first recommendations.
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
-- evaluation.strata: one row per run, protocol, model, score, metric, division of users or items, and part of it.
create table if not exists evaluation.strata (
    run_id varchar not null,
    protocol varchar not null,
    model varchar not null,
    score varchar not null,
    metric varchar not null,
    strata varchar not null,
    stratum varchar,
    least double,
    most double,
    value double not null,
    standard_error double,
    users bigint not null,
    targets bigint not null
);
-- operations.evaluated_runs: one row per run that evaluated anything and came to its end, also if some model failed in it. Whatever asks for the last run, or the
-- one before this, asks here: a tune or a run that failed has no evaluation that another can be held against.
-- `place` is the order in which runs were recorded, which a clock that was set back leaves as it is.
create or replace view operations.evaluated_runs as
select
    rowid as place,
    *
from operations.runs
where state in ('completed', 'partly_failed') and exists (from evaluation.metrics where metrics.run_id = runs.run_id);
