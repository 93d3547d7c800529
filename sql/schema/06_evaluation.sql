create schema if not exists evaluation;
-- evaluation.metrics: one row per run, protocol, model, score and metric: its mean over users.
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
