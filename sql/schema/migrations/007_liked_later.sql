-- indexed.observed_negatives: one row per pair as before; of a pair that is liked later, when.
alter table if exists indexed.observed_negatives add column if not exists liked_at timestamp;
