-- operations.arrivals: one row per log that a run of ingest read in, `new` or `changed` under its name; per name
-- that went over to bytes that the warehouse held already (`withdrawn`); and per file of the landing folder that
-- was `set aside`, without file_id and sha256, and with the reason. The events and rejects before are those that
-- the name had until then, and that were deleted.
create table if not exists operations.arrivals (
    run_id varchar not null,
    arrived_at timestamp not null default (now() at time zone 'UTC'),
    name varchar not null,
    path varchar not null,
    outcome varchar not null,
    file_id bigint,
    sha256 varchar,
    events bigint not null,
    rejects bigint not null,
    events_before bigint not null,
    rejects_before bigint not null,
    reason varchar
);
