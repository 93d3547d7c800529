"""A shop lives 90 nights with lists that explore or not: clicks, regret, and likes of new items.

    python -m benchmarks.accuracy.exploration [--nights 90] [--seeds 3] [--share 0.2] [--save FILE]

Users and items have hidden traits, and a user who looks at an item likes it with the probability sigma(u'v + b) of the
random-graph paper's story. Some likes are there at the start; every night new items come, half of the users look at a
list of ten each and at one item drawn by popularity, and `random_graph` is fitted to all likes. A liked item is not
listed again. Policies differ in the last places of the lists, `--share` of them (`tasks/recommend/exploration.py`):
greedy takes the best by the score of the published lists, `random` any items, `thompson`, `bonus` and `mixture` as
`publish.explore` does. All policies see the same users, coins and new items. The regret of a night is the number of
likes that the best lists by the hidden probabilities would get, minus that of the policy's, both expected, per list.
Prints, with standard errors over the seeds: the clicks of the first week against greedy's, the regret of the last ten
nights, the likes of items that were new, and the first night by which as many are found as greedy finds in all.
`--save` draws the regret by night.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from scipy.special import expit

from oneclass.models.random_graph.model import RandomGraph
from oneclass.tasks.recommend.exploration import Exploration, find_candidates, pick_items
from oneclass.tasks.rules.selection import Selection

USERS, FIRST_ITEMS, NEW_ITEMS, TRAITS, N = 400, 300, 3, 6, 10
CONSIDERED, WEEK, LAST = 25, 7, 10  # items that a user looked at before; nights
POLICIES = ("greedy", "random", "bonus", "thompson", "mixture")
SCORE = "popularity_x_odds"
NONE = np.empty(0, dtype=np.int32)


class Shop(NamedTuple):
    """The hidden truth: probabilities (users, items) of all items that will come, and how popular each is."""

    probability: np.ndarray
    popularity: np.ndarray


class Life(NamedTuple):
    """What happened, by night: expected clicks and regret per list, and likes of items that were new."""

    clicks: np.ndarray
    regret: np.ndarray
    new_likes: np.ndarray


def draw_shop(nights: int, seed: int) -> Shop:
    """Draw traits, biases and popularities."""
    random, items = np.random.default_rng(seed), FIRST_ITEMS + NEW_ITEMS * nights
    scale = np.sqrt(2.0 / np.sqrt(TRAITS))  # so that u'v has a standard deviation of 2
    users, traits = (scale * random.normal(size=(count, TRAITS)) for count in (USERS, items))
    probability = expit(users @ traits.T + random.normal(-2.5, 0.7, items))
    return Shop(probability, random.pareto(1.5, items) + 0.1)


def live(shop: Shop, policy: str, nights: int, share: float, seed: int) -> Life:
    """Let the shop live under a policy."""
    liked = np.zeros(shop.probability.shape, dtype=bool)
    random = np.random.default_rng([seed, 1])
    for user in range(USERS):
        seen = draw_by_popularity(random, shop.popularity[:FIRST_ITEMS], CONSIDERED)
        liked[user, seen] = random.random(CONSIDERED) < shop.probability[user, seen]
    found = Life(*(np.zeros(nights) for _ in Life._fields))
    for night in range(nights):
        items = FIRST_ITEMS + NEW_ITEMS * (night + 1)
        random = np.random.default_rng([seed, 2, night])  # the same for every policy
        visitors, coins = np.flatnonzero(random.random(USERS) < 0.5), random.random(liked.shape)
        looked = np.array([draw_by_popularity(random, shop.popularity[:items], 1)[0] for _ in visitors])
        listed = list_items(csr_matrix(liked[:, :items], dtype=np.float32), visitors, policy, share, night, seed)
        rows, chances = visitors[:, None], np.where(liked, 0, shop.probability)[visitors, :items]
        got = np.take_along_axis(chances, listed, axis=1).sum(axis=1)
        best = -np.partition(-chances, N, axis=1)[:, :N]
        found.clicks[night], found.regret[night] = got.mean(), (best.sum(axis=1) - got).mean()
        before = liked[:, FIRST_ITEMS:].sum()
        liked[rows, listed] |= coins[rows, listed] < shop.probability[rows, listed]
        liked[visitors, looked] |= coins[visitors, looked] < shop.probability[visitors, looked]
        found.new_likes[night] = liked[:, FIRST_ITEMS:].sum() - before
    return found


def draw_by_popularity(random: np.random.Generator, popularity: np.ndarray, count: int) -> np.ndarray:
    return random.choice(len(popularity), count, replace=False, p=popularity / popularity.sum())


def list_items(likes: csr_matrix, visitors: np.ndarray, policy: str, share: float, night: int, seed: int) -> np.ndarray:
    """Return the visitors' lists by a model fitted to the likes, (visitors, N)."""
    model = RandomGraph(iterations=12, factors=8, bound_every=0, seed=seed, threads=2).fit(likes)
    histories, rows = likes[visitors], visitors.astype(np.int32)
    scores = model.scores(histories, users=rows, score=SCORE)
    mean, deviation = model.like(histories, users=rows)
    selection = Selection.of_all(histories, N, exclude_seen=True)
    candidates = find_candidates(scores, (mean, deviation), histories, selection)
    if policy == "greedy":
        return candidates[:, :N]
    if policy == "random":
        random, places = np.random.default_rng([seed, 3, night]), max(1, round(share * N))
        others = np.where(histories.toarray() > 0, -1.0, random.random(scores.shape))
        np.put_along_axis(others, candidates[:, : N - places].astype(np.int64), -1.0, axis=1)
        return np.concatenate([candidates[:, : N - places], np.argsort(-others, axis=1)[:, :places]], axis=1)
    explores = Exploration(policy, share=share, bonus=1.0, rate=0.5, night=night, seed=seed)
    like = np.take_along_axis(mean, candidates, axis=1), np.take_along_axis(deviation, candidates, axis=1)
    return np.take_along_axis(candidates, pick_items(explores, candidates, like, rows, N, NONE)[0], axis=1)


def mean_and_error(values: list[float], digits: int) -> str:
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):.{digits}f} ± {error:.{digits}f}"


def main() -> None:
    """Print a row for each policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=90)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    lives: dict[str, list[Life]] = {policy: [] for policy in POLICIES}
    for seed in range(given.seeds):
        shop = draw_shop(given.nights, seed)
        for policy, of_seeds in lives.items():
            of_seeds.append(live(shop, policy, given.nights, given.share, seed))
    print(
        "| policy | clicks of the first week, % of greedy's | regret of the last ten nights | likes of new items |",
        end="",
    )
    print(" night by which greedy's are found |")
    print("|---|---|---|---|---|")
    for policy, of_seeds in lives.items():
        pairs = list(zip(of_seeds, lives["greedy"], strict=True))
        week = [100 * one.clicks[:WEEK].sum() / greedy.clicks[:WEEK].sum() for one, greedy in pairs]
        reached = [
            float(np.searchsorted(np.cumsum(one.new_likes), greedy.new_likes.sum()) + 1) for one, greedy in pairs
        ]
        cells = [mean_and_error(week, 1), mean_and_error([one.regret[-LAST:].mean() for one in of_seeds], 3)]
        cells.append(mean_and_error([one.new_likes.sum() for one in of_seeds], 0))
        print(f"| {policy} | {' | '.join(cells)} | {mean_and_error(reached, 0)} |", flush=True)
    if given.save:
        draw_regret({policy: np.mean([one.regret for one in of], axis=0) for policy, of in lives.items()}, given.save)


def draw_regret(curves: dict[str, np.ndarray], file: Path) -> None:
    """Draw the regret by night, a line for each policy."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    for policy, regret in curves.items():
        axes.plot(np.arange(1, len(regret) + 1), regret, label=policy)
    axes.set(xlabel="night", ylabel="likes per list below the best lists")
    axes.legend(frameon=False)
    figure.savefig(file, bbox_inches="tight")


if __name__ == "__main__":
    main()
