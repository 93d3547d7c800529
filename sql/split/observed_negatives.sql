-- One row per observed negative with its role in a protocol: `train`; the part whose users it is held out of, as large a share
-- of a user's as of the user's likes, drawn by hash; or `left_out`, of users who are not trained on.
create or replace temp table observed_negatives_roles as
with drawn as (
    select
        user_index,
        item_index,
        item_column,
        (md5_number($seed || ':observed_negative:' || $protocol || ':' || user_id || ':' || item_id) % 1000000007)::double
            / 1000000007 as draw
    from indexed.observed_negatives
    join indexed.users using (user_index)
    join indexed.items using (item_index)
    join split_columns using (item_index)
    where $before is null or first_at < $before
)
select
    user_index,
    item_column,
    1::integer as event_count,
    case
        when draw < share then part
        when trained is null or trained then 'train'
        else 'left_out'
    end as role
from drawn
left join held_out_shares using (user_index)
