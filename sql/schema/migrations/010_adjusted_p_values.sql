-- evaluation.comparisons: one row per pair of ranked lists as before; its p-value corrected for all pairs of the metric,
-- null in the rows of earlier runs.
alter table if exists evaluation.comparisons add column if not exists adjusted_p_value double;
