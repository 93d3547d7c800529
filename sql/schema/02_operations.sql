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
