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
-- the difference is that of model minus other_model. `adjusted_p_value` is corrected for all pairs of the metric.
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
-- evaluation.dislike_by_degree: one row per run, model and bin of user training degrees, as `like_by_degree`, of held-out
-- items that users considered and did not like; `error` is the share of one half and more. None unless
-- `binarize.explicit_negatives` keeps such.
create table if not exists evaluation.dislike_by_degree (
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
-- evaluation.considered: one row per run, protocol, model with a `like` (or popularity) and metric of held-out items that
-- users considered, likes and dislikes; none unless `binarize.explicit_negatives` keeps the latter.
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
-- evaluation.strata: one row per run, protocol, model, score, metric, division of users or items (`strata`) and part of it
-- (`stratum`). `least` and `most` are the range of its values.
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
