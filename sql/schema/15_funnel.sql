-- operations.funnel: one row per step from the lines of all logs to the edges of the observed graph in a run: what was
-- lost, and what remained.
create table if not exists operations.funnel (
    run_id varchar not null,
    step integer not null,
    unit varchar not null,
    reason varchar not null,
    lost bigint not null,
    remaining bigint not null,
    users bigint,
    items bigint
);
