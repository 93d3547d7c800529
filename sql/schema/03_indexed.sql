-- indexed.users: one row per user of a curated edge: its index, which is its row in the matrices, and its id in the log.
-- The tables of this schema hold by number what `curated.interactions` and the views of `splits` show by id.
create schema if not exists indexed;
create table if not exists indexed.users (
    user_index integer not null,
    user_id varchar not null
);
-- indexed.items: one row per item of a curated edge: its index, which is its column in the matrices, and its id.
create table if not exists indexed.items (
    item_index integer not null,
    item_id varchar not null
);
-- indexed.new_items: one row per item of the table of attributes that nobody likes.
create table if not exists indexed.new_items (
    item_index integer not null,
    item_id varchar not null
);
-- indexed.interactions: one row per edge of the observed graph G.
create table if not exists indexed.interactions (
    user_index integer not null,
    item_index integer not null,
    event_count integer not null,
    first_at timestamp,
    last_at timestamp,
    first_file_id bigint not null,
    first_line bigint not null,
    weight double
);
-- indexed.strong_generalization: one row per edge of a user that the protocol keeps.
create table if not exists indexed.strong_generalization (
    user_index integer not null,
    item_index integer not null,
    part enum('train', 'validation', 'test') not null,
    role enum('fit', 'fold_in', 'target', 'dropped') not null
);
-- indexed.leave_one_out: one row per curated edge.
create table if not exists indexed.leave_one_out (
    user_index integer not null,
    item_index integer not null,
    role enum('train', 'held_out') not null
);
-- indexed.cold_items: one row per curated edge.
create table if not exists indexed.cold_items (
    user_index integer not null,
    item_index integer not null,
    role enum('train', 'held_out', 'new', 'dropped') not null
);
-- indexed.next_events: one row per curated edge.
create table if not exists indexed.next_events (
    user_index integer not null,
    item_index integer not null,
    role enum('train', 'next', 'dropped', 'again') not null
);
-- indexed.given: one row per edge of the train and test files that a data set comes with.
create table if not exists indexed.given (
    user_index integer not null,
    item_index integer not null,
    role enum('train', 'test') not null
);
-- indexed.observed_negatives: one row per user and item that the user considered and did not like, or only later.
create table if not exists indexed.observed_negatives (
    user_index integer not null,
    item_index integer not null,
    first_at timestamp,
    liked_at timestamp
);
