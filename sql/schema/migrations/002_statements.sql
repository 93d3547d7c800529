-- operations.schema_version: one row per version; each with the digest of the statements that last made what was absent.
alter table if exists operations.schema_version add column if not exists statements varchar;
