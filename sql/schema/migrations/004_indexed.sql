-- curated.interactions: one row per edge of the observed graph G, with ids and indices; it was a table, and is made here
-- where there is none. Its rows go to `indexed`. Those of `splits` go: the next run makes them anew, by index.
create schema if not exists curated;
create table if not exists curated.interactions (
    user_id varchar not null,
    item_id varchar not null,
    user_index integer not null,
    item_index integer not null,
    event_count integer not null,
    first_at timestamp,
    last_at timestamp,
    first_file_id bigint not null,
    first_line bigint not null
);
-- indexed.users: one row per user of a curated edge.
create schema if not exists indexed;
create table indexed.users (user_index integer not null, user_id varchar not null);
insert into indexed.users select distinct user_index, user_id from curated.interactions;
-- indexed.items: one row per item of a curated edge.
create table indexed.items (item_index integer not null, item_id varchar not null);
insert into indexed.items select distinct item_index, item_id from curated.interactions;
-- indexed.interactions: one row per edge, by index.
create table indexed.interactions (
    user_index integer not null,
    item_index integer not null,
    event_count integer not null,
    first_at timestamp,
    last_at timestamp,
    first_file_id bigint not null,
    first_line bigint not null
);
insert into indexed.interactions by name select * exclude (user_id, item_id) from curated.interactions;
drop table curated.interactions;
drop table if exists splits.strong_generalization;
drop table if exists splits.leave_one_out;
drop table if exists splits.next_events;
drop table if exists splits.given;
