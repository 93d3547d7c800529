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
)
