"""What the page's names mean, said once: metrics and scores. `tasks.protocols` has the protocols."""

METRICS = {
    "ndcg@100": "how many of the held-out likes are among the first 100, early ones counting more; 1 is perfect",
    "ndcg@20": "how many of the held-out likes are among the first 20, early ones counting more; 1 is perfect",
    "recall@20": "share of the held-out likes among the first 20, of at most 20",
    "recall@50": "share of the held-out likes among the first 50, of at most 50",
    "recall_of_all@20": "share of all held-out likes that are among the first 20",
    "mean_rank": "share of the other items that a held-out like beats, ties lost; 1 is the head, 0.5 guessing",
    "mean_rank_midtie": "the mean rank with a tie counting one half",
    "median_rank": "the middle one of all those ranks",
    "rank_p05": "one in twenty of those ranks is lower",
    "rank_p25": "one in four of those ranks is lower",
    "rank_p75": "three in four of those ranks are lower",
    "rank_p95": "nineteen in twenty of those ranks are lower",
    "validation_ndcg@100": "ndcg@100 on the validation users, by whom settings are chosen",
    "coverage@20": "share of the items that are among anybody's first 20",
    "novelty@20": "surprise in bits: how rarely the items recommended are liked, -log2 of the share of users who do",
    "popularity_percentile@20": "share of the items that are liked less than one recommended: 0.5 is even-handed",
    "popularity_lift@20": "how much more popular what is recommended is than what is in the history; 0 is the same",
    "gini@20": "how unevenly items are shown: 0 is all alike, 1 is one item for everybody",
}
SCORES = {
    "score": "what the model ranks by, where it has one score only",
    "like": "how well an item pleases once it is met, its popularity set aside",
    "popularity_x_like": "like times how often the item is met: the papers' own",
    "popularity_x_odds": "the odds of a like times a power of how often the item is met",
}
STANDINGS = {"best": "best", "level": "level", "": ""}
