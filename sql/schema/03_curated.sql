-- curated.interactions: one row per edge of the observed graph G, a (user, item) pair that is liked.
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
