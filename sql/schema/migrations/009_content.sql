-- operations.log_files: one row per log file as before; the digest of what it holds once it is unpacked, null where it was
-- read in before that was stored.
alter table if exists operations.log_files add column if not exists content_sha256 varchar;
