-- ranked: one row per user and rank of the lists that stand as published, in the ids of the logs.
create or replace temp view ranked as
select
    user_id as user_index,
    item_id as item_index,
    rank,
    score
from published.recommendations
