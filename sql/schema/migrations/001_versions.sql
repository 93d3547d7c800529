-- operations.schema_version: one row per version of the tables that this warehouse has had; none before versions were
-- noted.
create schema if not exists operations;
create table if not exists operations.schema_version (
    version integer not null,
    applied_at timestamp not null
);
