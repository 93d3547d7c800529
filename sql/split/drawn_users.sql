-- user_parts: one row per user of `drawn_users` with its part, of the table's own type.
create or replace temp table user_parts as
select
    user_index,
    part::enum('train', 'validation', 'test') as part
from drawn_users
