-- operations.promotions: one row per decision on what stands as published: by a run of all stages, or by hand. Champion and
-- challenger are written `model/score`; no champion where nothing was published before, or nobody knows what made it.
create table if not exists operations.promotions (
    run_id varchar not null,
    decided_at timestamp not null,
    champion varchar,
    challenger varchar not null,
    metric varchar,
    difference double,
    standard_error double,
    margin double not null,
    promoted boolean not null,
    reason varchar not null
);
