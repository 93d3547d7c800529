"""The main table's words on models that are worse than a trivial one, on planted rows."""

import pytest
from scipy import stats

from oneclass.models.evaluation.metrics import Mean
from oneclass.tasks.leaderboard import LeaderboardRow, add_weaknesses, list_weaknesses

RANKS = {
    "popularity": {"score": (0.30, 0.80)},
    "mrf_dense": {"score": (0.40, 0.90)},
    "slim": {"score": (0.35, 0.33)},
    "wmf": {"score": (0.29, 0.85)},
    "random_graph": {"like": (0.10, 0.45), "popularity_x_odds": (0.38, 0.91)},
    "paired_symbols": {"like": (0.10, 0.45), "popularity_x_odds": (0.20, 0.49)},
}
RECALL = {"recall@20": (0.2, 0.01), "recall@50": (0.3, 0.01)}
GUESSING = "strong_generalization ranks worse than guessing: mean rank"
SENTENCES = [
    f"slim on {GUESSING} 0.3300 of known items, and guesses have 0.5",
    "wmf on strong_generalization is worse than popularity: ndcg@100 0.2900, and popularity has 0.3000",
    f"paired_symbols on {GUESSING} 0.4900 of known items, and guesses have 0.5",
    "paired_symbols on strong_generalization is worse than popularity: ndcg@100 0.2000, and popularity has 0.3000",
]


def make_table(ranks=RANKS, protocol="strong_generalization", error=0.001):
    return [
        LeaderboardRow(protocol, model, score, 40, {"ndcg@100": (ndcg, 0.01), **RECALL, "mean_rank": (rank, error)}, "")
        for model, scores in ranks.items()
        for score, (ndcg, rank) in scores.items()
    ]


def with_weaknesses(rows, p_value=1e-6):
    """Add weaknesses; every list has the same p-value against popularity, and all items to be found are known."""
    tests = {(row.protocol, "ndcg@100", row.model, row.score): p_value for row in rows}
    ranks = {(row.protocol, row.model, row.score): Mean(*row.cells["mean_rank"], row.users) for row in rows}
    return add_weaknesses(rows, tests, ranks)


def test_a_model_is_named_where_its_best_score_is_worse_than_a_trivial_one():
    rows = with_weaknesses(make_table())
    assert list_weaknesses(rows) == SENTENCES
    assert {row.model for row in rows if row.weaknesses} == {"slim", "wmf", "paired_symbols"}


def test_popularity_is_held_against_guesses_alone_and_protocols_apart():
    rows = with_weaknesses(
        [*make_table({"popularity": {"score": (0.2, 0.4)}}), *make_table({"wmf": {"score": (0.1, 0.6)}}, "given")]
    )
    (sentence,) = list_weaknesses(rows)
    assert sentence.startswith("popularity on strong_generalization ranks worse than guessing")


# Five models are compared with popularity, so Holm's factor of equal p-values is 5.
@pytest.mark.parametrize(("p_value", "marked"), [(0.0099, {"wmf", "paired_symbols"}), (0.0101, set()), (None, set())])
def test_a_model_is_worse_than_popularity_where_the_corrected_test_says_so(p_value, marked):
    rows = with_weaknesses(make_table(error=1.0), p_value)
    assert {row.model for row in rows if row.weaknesses} == marked


def test_a_mean_rank_is_below_guesses_where_the_corrected_test_says_so():
    """Of two models' one-sided t-tests with 39 degrees of freedom, the smaller p-value is doubled."""
    bound = -float(stats.t.ppf(0.025, 39)) * 0.01
    for rank, marked in ((0.5 - 1.001 * bound, {"slim"}), (0.5 - 0.999 * bound, set())):
        rows = with_weaknesses(make_table({"slim": {"score": (0.4, rank)}, "wmf": {"score": (0.4, 0.6)}}, error=0.01))
        assert {row.model for row in rows if row.weaknesses} == marked
