-- indexed.interactions: one row per row of {edges}, with the place in the logs where it first appeared.
insert into indexed.interactions
select
    user_index,
    item_index,
    event_count,
    make_timestamp(nullif(first_at, $never::bigint)) as first_at,
    make_timestamp(nullif(last_at, $never::bigint)) as last_at,
    position >> 40 as first_file_id,
    position & 1099511627775 as first_line
from {edges}
