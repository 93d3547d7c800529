-- operations.nights: one row per figure of a night and run; three figures get other names. The table is made here where
-- there is none.
create table if not exists operations.nights (
    run_id varchar not null,
    night date not null,
    figure varchar not null,
    value double,
    in_ratio boolean not null,
    usual double,
    spread double,
    compared_with bigint not null
);
update operations.nights set figure = 'missing_user_share' where figure = 'users_away';
update operations.nights set figure = 'clock_shift' where figure = 'clock_off';
update operations.nights set figure = 'off_day_share' where figure = 'other_day_share';
