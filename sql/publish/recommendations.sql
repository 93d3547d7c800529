-- One row per user and rank, in the ids of the logs.
insert into published.recommendations
with users as (
    select distinct user_id, user_index from curated.interactions
), items as (
    select distinct item_id, item_index from curated.interactions
)
select
    user_id,
    item_id,
    rank,
    score,
    like_mean,
    like_sd
from ranked
join users using (user_index)
join items using (item_index)
order by user_index, rank
