-- raw.events: one row per line of a log (per item of an adjacency line), as read, before any rule. Users' ids lie as they
-- are: to compress them takes a quarter of the time of reading a log, and they are read no faster.
create schema if not exists raw;
create table if not exists raw.events (
    user_id varchar not null using compression uncompressed,
    item_id varchar not null,
    value double not null,
    occurred_at timestamp,
    file_id bigint not null,
    line_number bigint not null,
    event varchar
);
-- raw.rejects: one row per line that could not be read, with the reason.
create table if not exists raw.rejects (
    file_id bigint not null,
    line_number bigint not null,
    line varchar,
    reason varchar not null
);
-- raw.places: one row per item of a line of an adjacency log; a log of one event a line has none.
create table if not exists raw.places (
    file_id bigint not null,
    line_number bigint not null,
    place integer not null,
    item_id varchar not null
);
-- raw.attributes: one row per cell of the current tables of attributes of items and users, as text.
create table if not exists raw.attributes (
    side varchar not null, -- item or user
    id varchar not null, -- of the item or user
    name varchar not null, -- the column
    value varchar -- null where the cell is empty
);
