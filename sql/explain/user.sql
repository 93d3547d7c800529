-- One row: the user's index (null where nothing of theirs counts as a like), how many events of theirs are in the
-- logs, and three users that there are.
select
    (select user_index from users where user_id = $user_id) as user_index,
    (select events from users where user_id = $user_id) as events,
    (select string_agg(user_id, ', ') from (
        from users where user_index is not null order by user_index limit 3
    )) as others
