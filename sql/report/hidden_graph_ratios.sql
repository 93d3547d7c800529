-- One row per rate r and item of a sampled hidden graph: its likes and the edges added to it.
select
    r,
    item_index,
    positives,
    negatives
from diagnostics.hidden_graph_ratios
order by r, positives, item_index
