-- name: runs
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
)

-- name: contract_results
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
)

-- name: complete_nights
-- operations.complete_nights: one row per night that came to its end, with the last run that completed it.
create or replace view operations.complete_nights as
select
    night,
    max_by(run_id, runs.rowid) as run_id
from (select distinct run_id, night from operations.nights) as nights
join operations.runs using (run_id)
where state in ('completed', 'partly_failed')
group by night

-- name: stage_results
-- operations.stage_results: one row per stage that keeps what it made: the digest of all that its tables were made from,
-- a digest of their rows, and what the stage returned; and one per evaluation, choice of a blend and check of contracts.
create table if not exists operations.stage_results (
    stage varchar not null, -- the stage's name, with its protocol
    made_from varchar not null, -- digest of the rows, settings, source and libraries that its tables depend on
    made varchar not null, -- digest of its tables' rows; empty without tables
    result json not null -- what the stage returned; the broken rules of contracts
)

-- name: search_trials
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
)

-- name: publications
-- operations.publications: one row per publication that the home keeps, with a copy of its manifest, from which a damaged one
-- is restored.
create table if not exists operations.publications (
    run_id varchar not null, -- the run that made it
    manifest varchar not null, -- the text of its `manifest.json`
    is_current boolean not null -- whether `published` points to it
)

-- name: alarms
-- operations.alarms: one row per thing that a run found damaged or wrong in the home, and what it did about it.
create table if not exists operations.alarms (
    run_id varchar not null, -- the run that found it
    alarm varchar not null -- what was wrong, and what was done
)

-- name: schema_version
-- operations.schema_version: one row per version of the tables that this warehouse has had; each with the digest of the
-- statements that last made what was absent.
create table if not exists operations.schema_version (
    version integer not null, -- the number of the last migration
    applied_at timestamp not null, -- in UTC
    statements varchar -- digest of the statements; null where an older version made the tables
)

-- name: interactions
-- curated.interactions: one row per edge of the observed graph G, a (user, item) pair that is liked: `indexed.interactions`
-- with the ids `user_id` and `item_id` beside the indices.
create schema if not exists curated;
create or replace view curated.interactions as
select
    user_id,
    item_id,
    interactions.*
from indexed.interactions as interactions
join indexed.users using (user_index)
join indexed.items using (item_index)

-- name: items
-- curated.items: one row per item that is liked or new, with how many users like it.
create or replace view curated.items as
select
    item_index,
    item_id,
    coalesce(users, 0) as users
from (from indexed.items union all from indexed.new_items)
left join (select item_index, count(*) as users from indexed.interactions group by item_index) using (item_index)

-- name: explicit_negatives
-- curated.explicit_negatives: one row per pair of a user and an item that the user considered and did not like:
-- the rows of `indexed.observed_negatives` without a later like, by `user_id` and `item_id`.
create or replace view curated.explicit_negatives as
select
    user_id,
    item_id,
    first_at
from indexed.observed_negatives
join indexed.users using (user_index)
join indexed.items using (item_index)
where liked_at is null

-- name: pairs
-- evaluation.pairs: one row per row of `evaluation.comparisons` and direction, each list compared with the other.
create or replace view evaluation.pairs as
from evaluation.comparisons
union all by name
select * replace (
    other_model as model, other_score as score, model as other_model, score as other_score, -difference as difference
)
from evaluation.comparisons

-- name: evaluated_runs
-- operations.evaluated_runs: one row per run that evaluated anything and came to its end, also if some model failed in
-- it. Whatever asks for the last run, or the one before this, asks here: a tune or a run that failed has no evaluation
-- that another can be held against. `place` is the order in which runs were recorded, which a clock that was set back leaves as it is.
create or replace view operations.evaluated_runs as
select
    rowid as place,
    *
from operations.runs
where state in ('completed', 'partly_failed') and exists (from evaluation.metrics where metrics.run_id = runs.run_id)

-- name: splits
-- splits.{protocol}: one row per row of `indexed.{protocol}`, by `user_id` and `item_id`.
create schema if not exists splits;
create or replace view splits.{protocol} as
select user_id, item_id, columns('^(part|role)$')::varchar
from indexed.{protocol}
join indexed.users using (user_index)
join indexed.items using (item_index)
