-- name: versions
-- operations.schema_version: one row per version of the tables that this warehouse has had; none before versions were
-- noted.
create schema if not exists operations;
create table if not exists operations.schema_version (
    version integer not null,
    applied_at timestamp not null
);

-- name: statements
-- operations.schema_version: one row per version; each with the digest of the statements that last made what was absent.
alter table if exists operations.schema_version add column if not exists statements varchar;

-- name: sweeps_by_side
-- evaluation.sweeps: one row per sweep, refit, protocol, score, side, bin of training degrees and metric. Rows of before
-- have no side: their bins are of users.
alter table if exists evaluation.sweeps add column if not exists side varchar;

-- name: indexed
-- curated.interactions: one row per edge of the observed graph G, with ids and indices; it was a table, and is made here
-- where there is none. Its rows go to `indexed`. Those of `splits` go: the next run makes them anew, by index.
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
-- indexed.users: one row per user of a curated edge.
create schema if not exists indexed;
create table indexed.users (user_index integer not null, user_id varchar not null);
insert into indexed.users select distinct user_index, user_id from curated.interactions;
-- indexed.items: one row per item of a curated edge.
create table indexed.items (item_index integer not null, item_id varchar not null);
insert into indexed.items select distinct item_index, item_id from curated.interactions;
-- indexed.interactions: one row per edge, by index.
create table indexed.interactions (
    user_index integer not null,
    item_index integer not null,
    event_count integer not null,
    first_at timestamp,
    last_at timestamp,
    first_file_id bigint not null,
    first_line bigint not null
);
insert into indexed.interactions by name select * exclude (user_id, item_id) from curated.interactions;
drop table curated.interactions;
drop table if exists splits.strong_generalization;
drop table if exists splits.leave_one_out;
drop table if exists splits.next_events;
drop table if exists splits.given;

-- name: roles
-- indexed.strong_generalization, indexed.leave_one_out, indexed.next_events, indexed.given: one row per edge as before; parts
-- and roles, which were text, become enums.
alter table if exists indexed.strong_generalization alter part type enum('train', 'validation', 'test');
alter table if exists indexed.strong_generalization alter role type enum('fit', 'fold_in', 'target', 'dropped');
alter table if exists indexed.leave_one_out alter role type enum('train', 'held_out');
alter table if exists indexed.next_events alter role type enum('train', 'next', 'dropped');
alter table if exists indexed.given alter role type enum('train', 'test');

-- name: figures
-- operations.nights: one row per figure of a night and run; three figures get other names. The table is made here where
-- there is none.
create table if not exists operations.nights (
    run_id varchar not null,
    night date not null,
    figure varchar not null,
    value double,
    in_ratio boolean not null,
    usual double,
    spread double,
    compared_with bigint not null
);
update operations.nights set figure = 'missing_user_share' where figure = 'users_away';
update operations.nights set figure = 'clock_shift' where figure = 'clock_off';
update operations.nights set figure = 'off_day_share' where figure = 'other_day_share';

-- name: liked_later
-- indexed.observed_negatives: one row per pair as before; of a pair that is liked later, when.
alter table if exists indexed.observed_negatives add column if not exists liked_at timestamp;

-- name: event_kinds
-- raw.events: one row per line as before; of a log with kinds of events, which one.
alter table if exists raw.events add column if not exists event varchar;
-- indexed.interactions: one row per edge as before; of a log whose values add up, their sum.
alter table if exists indexed.interactions add column if not exists weight double;

-- name: content
-- operations.log_files: one row per log file as before; the digest of what it holds once it is unpacked, null where it was
-- read in before that was stored.
alter table if exists operations.log_files add column if not exists content_sha256 varchar;

-- name: adjusted_p_values
-- evaluation.comparisons: one row per pair of ranked lists as before; its p-value corrected for all pairs of the metric,
-- null in the rows of earlier runs.
alter table if exists evaluation.comparisons add column if not exists adjusted_p_value double;

-- name: seen_items
-- indexed.next_events: one row per curated edge as before; an edge may both train and be found again.
alter table if exists indexed.next_events alter role type enum('train', 'next', 'dropped', 'again');

-- name: new_items
-- published.recommendations: one row per user and rank as before; which items nobody liked, and what they resemble.
alter table if exists published.recommendations add column if not exists is_new boolean;
alter table if exists published.recommendations add column if not exists because varchar[];

-- name: explicit_likes
-- published.recommendations, published.placements: one row per user and rank as before; a like's probability against
-- explicit negatives, null where it was published before that was stored.
alter table if exists published.recommendations add column if not exists explicit_like_mean double;
alter table if exists published.recommendations add column if not exists explicit_like_sd double;
alter table if exists published.placements add column if not exists explicit_like_mean double;
alter table if exists published.placements add column if not exists explicit_like_sd double;

-- name: kinds_of_parts
-- raw.parts: one row per line as before; the kind of event that it names, of data sets with [join] and [events].
alter table if exists raw.parts add column if not exists event varchar;

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
