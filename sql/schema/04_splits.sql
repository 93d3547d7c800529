-- splits.strong_generalization: one row per edge of a user that the protocol keeps.
create schema if not exists splits;
create table if not exists splits.strong_generalization (
    user_id varchar not null,
    item_id varchar not null,
    part varchar not null,
    role varchar not null
);
-- splits.leave_one_out: one row per curated edge.
create table if not exists splits.leave_one_out (
    user_id varchar not null,
    item_id varchar not null,
    role varchar not null
);
-- splits.next_events: one row per curated edge.
create table if not exists splits.next_events (
    user_id varchar not null,
    item_id varchar not null,
    role varchar not null
);
-- splits.given: one row per edge of the train and test files that a data set comes with.
create table if not exists splits.given (
    user_id varchar not null,
    item_id varchar not null,
    role varchar not null
);
