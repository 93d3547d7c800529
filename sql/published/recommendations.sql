-- One row per user and rank, by user and best first.
from published.recommendations
order by user_id, rank
