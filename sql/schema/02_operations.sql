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
    content_sha256 varchar -- of what it holds, once unpacked and in UTF-8; null where an older version read it in
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
-- operations.run_machines: one row per run: the machine of its process, and the energy that this machine drew meanwhile.
create table if not exists operations.run_machines (
    run_id varchar not null, -- the run in operations.runs
    processor varchar not null, -- its model
    cores integer not null, -- that the process may use
    used_cores integer not null, -- by --threads
    memory_bytes bigint not null, -- of the machine, or a lower limit of the process
    system varchar not null, -- the operating system with its release
    python varchar not null, -- the version of Python
    energy_joules double -- by RAPL, of packages and memory, other processes included; null if it cannot be read
);
-- operations.run_packages: one row per run: the installed packages.
create table if not exists operations.run_packages (
    run_id varchar not null, -- the run in operations.runs
    packages json not null -- the version of each by its name, oneclass aside
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
