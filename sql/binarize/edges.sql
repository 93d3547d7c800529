-- edges: one row per (user, item) that has a like, by their codes: repeats folded into one edge. None yet.
create or replace temp table edges (
    user_code integer,
    item_code integer,
    event_count integer,
    first_at bigint,
    last_at bigint,
    position bigint
)
