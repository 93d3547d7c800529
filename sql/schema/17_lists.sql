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
