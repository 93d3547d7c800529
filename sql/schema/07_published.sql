-- published.recommendations: one row per user and rank, best first.
create schema if not exists published;
create table if not exists published.recommendations (
    user_id varchar not null,
    item_id varchar not null,
    rank integer not null,
    score double not null,
    like_mean double,
    like_sd double,
    is_new boolean,
    because varchar[],
    explicit_like_mean double,
    explicit_like_sd double
);
-- published.exploration: one row per list that explores and rank, best first.
create table if not exists published.exploration (
    list_id varchar not null,
    user_id varchar not null,
    policy varchar not null,
    item_id varchar not null,
    rank integer not null,
    score double not null,
    propensity double not null,
    like_mean double,
    like_sd double
);
-- published.placements: one row per placement, user and rank, best first.
create table if not exists published.placements (
    placement varchar not null,
    user_id varchar not null,
    item_id varchar not null,
    rank integer not null,
    score double not null,
    like_mean double,
    like_sd double,
    is_new boolean,
    because varchar[],
    explicit_like_mean double,
    explicit_like_sd double
);
-- published.lists: one row per list for everybody, category, window and rank, best first.
create table if not exists published.lists (
    list varchar not null,
    category varchar,
    window_days integer,
    rank integer not null,
    item_id varchar not null,
    value double not null,
    users bigint not null,
    expected_users double,
    p_value double
);
