-- One row: the user's index (null where nothing of theirs counts as a like), how many events of theirs are in the
-- logs, and three users that there are.
select
    (select any_value(user_index) from curated.interactions where user_id = $user_id) as user_index,
    (select count(*) from raw.events where user_id = $user_id) as events,
    (select string_agg(user_id, ', ') from (
        select distinct user_id, user_index from curated.interactions order by user_index limit 3
    )) as others
