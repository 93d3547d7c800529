-- name: without_parts
-- raw.parts: one row per line of orders and their lines, in files of two kinds; nothing reads it.
drop table if exists raw.parts;

-- name: lists_alone
-- published.predictability, diagnostics.simulated_nights: one row per user, policy and night; both go.
drop table if exists published.predictability;
drop table if exists diagnostics.simulated_nights;

-- name: no_windows
-- operations.attribute_tables: one row per version of a table as before; the ends of availability windows, kinds of
-- columns that are gone, are dates.
alter table if exists operations.attribute_tables alter types type varchar[]
    using list_transform(types, lambda type: if(type in ('available_from', 'available_until'), 'date', type));

-- name: without_sweeps
-- evaluation.sweeps: one row per refit with other settings and metric; nothing reads it.
drop table if exists evaluation.sweeps;

-- name: machines
-- operations.run_machines, operations.run_packages: one row per run; nothing reads them.
drop table if exists operations.run_machines;
drop table if exists operations.run_packages;

-- name: explicit_negatives_alone
-- curated.observed_negatives: one row per row of `curated.explicit_negatives`; a second name of that view.
drop view if exists curated.observed_negatives;

-- name: one_cache
-- operations.evaluations: one row per run and protocol; evaluations are among `operations.stage_results` now, and made
-- once more.
drop table if exists operations.evaluations;

-- name: contracts_checked_anew
-- operations.stage_results: one row per stage as before; checks of contracts are not kept. The table is made here where
-- there is none.
create schema if not exists operations;
create table if not exists operations.stage_results (
    stage varchar not null,
    made_from varchar not null,
    made varchar not null,
    result json not null
);
delete from operations.stage_results where starts_with(stage, 'contract of ');

-- name: usual_ranges
-- operations.nights: one row per figure of a night and run as before; the range of usual values, null in earlier rows.
-- diagnostics.nightly_exponents: one row per run and side; nothing reads it.
alter table if exists operations.nights add column if not exists usual_from double;
alter table if exists operations.nights add column if not exists usual_to double;
drop table if exists diagnostics.nightly_exponents;

-- name: columns_of_logs
-- operations.log_files: one row per log file as before; whether it names its columns, null in earlier rows.
alter table if exists operations.log_files add column if not exists names_columns boolean;

-- name: without_rank_cells
-- evaluation.ranks_by_both_degrees: one row per run, list and cell of degrees; nothing reads it.
drop table if exists evaluation.ranks_by_both_degrees;

-- name: without_dislikes_by_degree
-- evaluation.dislike_by_degree: one row per run, model and bin of degrees; nothing reads it.
drop table if exists evaluation.dislike_by_degree;
