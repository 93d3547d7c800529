"""The formula and source of every metric; `metrics` and `beyond_accuracy` compute them.

In all formulas u is a user, T_u the held-out items (targets) of u, C_u the candidates: all items but those of the
history of u, which are candidates too under `next_events` if a run shows seen items (`publish.seen`). Place 1 is the
head of the list of all candidates by score, where of equal scores the lower index comes first; L_u are the first k of
it. s_n is the score of item n, d_n its training degree, and M the number of training users.
"""

from dataclasses import dataclass

from oneclass.models.evaluation.beyond_accuracy import TOP_K
from oneclass.models.evaluation.metrics import PERCENTILES
from oneclass.models.evaluation.ranks_apart import KNOWN_RANK, NEW, OF_NEW_ITEMS, REPEATED

LIANG_2018 = "Liang, Krishnan, Hoffman, Jebara 2018"
S = "eq. 23 of the random-graph paper (Paquet, Koenigstein 2013), eq. 12 of the paper on paired symbols"


@dataclass(frozen=True)
class Definition:
    """A metric.

    Attributes:
        formula: for one user, or over all lists.
        source: the paper that defines it.
    """

    formula: str
    source: str


def _recall_definition(k: int) -> Definition:
    return Definition(f"hits among the first {k} / min({k}, targets): |L_u ∩ T_u| / min({k}, |T_u|)", LIANG_2018)


def _ndcg_definition(k: int | str) -> Definition:
    gain = f"sum of 1 / log2(place + 1) over the targets among the first {k}"
    return Definition(
        f"{gain}, divided by that of the first min({k}, |T_u|) places", f"Järvelin, Kekäläinen 2002; {LIANG_2018}"
    )


def _percentile_definition(percent: int) -> Definition:
    return Definition(f"the {percent}th percentile over users of their mean_rank, linearly interpolated", "")


USER_METRICS = {
    "recall@20": _recall_definition(20),
    "recall@50": _recall_definition(50),
    "recall_of_all@20": Definition(
        "|L_u ∩ T_u| / |T_u|, k = 20", "the tables on Gowalla since He et al. 2020 (LightGCN)"
    ),
    "ndcg@100": _ndcg_definition(100),
    "ndcg@20": _ndcg_definition(20),
    "mean_rank": Definition("mean over n in T_u of S_un = |{m in C_u: s_n > s_m}| / |C_u|, so that 0 ≤ S < 1", S),
    "mean_rank_midtie": Definition("the same, with a tie s_n = s_m, m other than n, counted as one half", ""),
    **{name: _percentile_definition(percent) for name, percent in PERCENTILES.items()},
}
# Of any k; those with a fixed k above are the same.
METRICS_AT_K = {
    "precision@k": Definition("share of hits among the first k places: |L_u ∩ T_u| / k", ""),
    "recall@k": Definition(
        "hits among the first k, by as many as there can be: |L_u ∩ T_u| / min(k, |T_u|)", LIANG_2018
    ),
    "recall_of_all@k": Definition(
        "hits among the first k, by the number of targets: |L_u ∩ T_u| / |T_u|; `Recall` of RecTools and RecBole", ""
    ),
    "hit_rate@k": Definition("1 if a target is among the first k, else 0", ""),
    "map@k": Definition(
        "sum over the targets among the first k of |L_u ∩ T_u| / place, L_u down to the target, over min(k, |T_u|)", ""
    ),
    "mrr@k": Definition("1 / place of the first target, 0 if that is beyond k", "Voorhees 1999"),
    "ndcg@k": _ndcg_definition("k"),
    "auc": Definition(
        "share of the pairs of a target and a candidate that is none in which the target scores higher; ties count "
        "half. With one target it is mean_rank_midtie · |C_u| / (|C_u| - 1)",
        "Rendle et al. 2009",
    ),
    "percentile_rank": Definition(
        "mean over n in T_u of the share of the other candidates that rank before n; ties count half: 0 is the head, "
        "1 the end, 1/2 chance. It is 1 - mean_rank_midtie · |C_u| / (|C_u| - 1). Hu et al. weigh all pairs alike, and "
        "this metric all users alike",
        "rank of Hu, Koren, Volinsky 2008",
    ),
}
# Over the users with such a target.
SEEN_ITEM_METRICS = {
    NEW: Definition("if seen items are candidates: ndcg@100 of the targets outside the history, among such items", ""),
    REPEATED: Definition("if seen items are candidates: ndcg@100 of the targets in the history, among its items", ""),
}
# Over the users with such a target; under cold_items the other metrics are of the known items.
NEW_ITEM_METRICS = {
    KNOWN_RANK: Definition("mean_rank_midtie of the targets with a training edge, so that guesses have 1/2", ""),
    **{
        name: Definition(f"under cold_items: {metric} of the targets without a training edge, among such items", "")
        for name, metric in OF_NEW_ITEMS.items()
    },
}
LIST_METRICS = {
    f"coverage@{TOP_K}": Definition(
        "share of the training items that are in at least one L_u", "Ge, Delgado-Battenfeld, Jannach 2010"
    ),
    f"novelty@{TOP_K}": Definition(
        "mean over n in L_u of -log2(d_n / M), in bits", "Zhou et al. 2010; Castells, Hurley, Vargas 2015"
    ),
    f"popularity_percentile@{TOP_K}": Definition(
        "mean over n in L_u of the share of training items with fewer edges than n; ties count half", ""
    ),
    f"popularity_lift@{TOP_K}": Definition(
        "(GAP(L) - GAP(P)) / GAP(P), where GAP is the mean over users of the mean d_n of their items, in their lists L "
        "and in their histories P: 0 if the lists are as popular as the histories",
        "Abdollahpouri et al. 2019",
    ),
    f"gini@{TOP_K}": Definition(
        "sum_k (2k - n - 1) x_(k) / (n sum x), where x_(1) ≤ ... ≤ x_(n) are how often each training item is shown, "
        "items that are never shown included: 0 if all are shown alike, near 1 if a few items are shown almost always",
        "the Gini index",
    ),
}
