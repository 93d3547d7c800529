-- published.recommendations, published.placements: one row per user and rank as before; a like's probability against
-- explicit negatives, null where it was published before that was stored.
alter table if exists published.recommendations add column if not exists explicit_like_mean double;
alter table if exists published.recommendations add column if not exists explicit_like_sd double;
alter table if exists published.placements add column if not exists explicit_like_mean double;
alter table if exists published.placements add column if not exists explicit_like_sd double;
