-- fitted_arrays: one row per array of a fitted model: how many entries it has, and how many that are not finite.
create or replace temp table fitted_arrays (
    protocol varchar,
    model varchar,
    "array" varchar,
    entries bigint,
    not_finite bigint
)
