-- ranked: one row per user and rank, best first, in the indices of the curated interactions.
create or replace temp table ranked (
    user_index integer,
    item_index integer,
    rank integer,
    score double,
    like_mean double,
    like_sd double
)
