-- One row per user: the part depends on the user's id and the seed alone, so it never moves.
create or replace temp table user_parts as
with draws as (
    select
        user_index,
        (md5_number($seed || ':part:' || user_id) % 1000000007)::double / 1000000007 as draw
    from indexed.users
    semi join active_users using (user_index)
)
select
    user_index,
    (case
        when draw < $held_out_share then 'test'
        when draw < 2 * $held_out_share then 'validation'
        else 'train'
    end)::enum('train', 'validation', 'test') as part
from draws
