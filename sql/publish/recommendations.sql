-- One row per user and rank, in the ids of the logs.
insert into published.recommendations
select
    user_id,
    item_id,
    rank,
    score,
    like_mean,
    like_sd
from ranked
join indexed.users using (user_index)
join indexed.items using (item_index)
order by user_index, rank
