"""A shop lives 90 nights with lists that explore or not: clicks, regret, and likes of new items.

    python -m benchmarks.accuracy.exploration [--nights 90] [--seeds 3] [--share 0.2] [--save FILE]

The shop is that of `tasks/publish/simulated_shop.py`, with drawn traits. Policies differ in the last places of the
lists, `--share` of them (`tasks/recommend/exploration.py`): greedy takes the best by the score of the published lists,
`random` any items, `thompson`, `bonus` and `mixture` as `publish.explore` does.
Prints, with standard errors over the seeds: the clicks of the first week against greedy's, the regret of the last ten
nights, the likes of items that were new, and the first night by which as many are found as greedy finds in all.
`--save` draws the regret by night.
"""

import argparse
from functools import partial
from pathlib import Path

import numpy as np
from scipy.special import expit

from oneclass.tasks.publish.simulated_shop import (
    FIRST_ITEMS,
    NEW_ITEMS,
    USERS,
    Life,
    N,
    Night,
    Policy,
    Shop,
    explore,
    list_best,
    live,
)
from oneclass.tasks.recommend.exploration import Exploration

TRAITS, WEEK, LAST = 6, 7, 10  # WEEK and LAST in nights


def draw_shop(nights: int, seed: int) -> Shop:
    """Draw traits, biases and popularities."""
    random, items = np.random.default_rng(seed), FIRST_ITEMS + NEW_ITEMS * nights
    scale = np.sqrt(2.0 / np.sqrt(TRAITS))  # so that u'v has a standard deviation of 2
    users, traits = (scale * random.normal(size=(count, TRAITS)) for count in (USERS, items))
    probability = expit(users @ traits.T + random.normal(-2.5, 0.7, items))
    return Shop(probability, random.pareto(1.5, items) + 0.1)


def build_policies(share: float, seed: int) -> dict[str, Policy]:
    """Return the policies by name."""
    exploring = (Exploration(name, share, bonus=1.0, rate=0.5, night=0, seed=seed)
                 for name in ("bonus", "thompson", "mixture"))  # fmt: skip
    return {
        "greedy": list_best,
        "random": partial(list_some_at_random, share, seed),
        **{one.policy: explore(one) for one in exploring},
    }


def list_some_at_random(share: float, seed: int, night: Night) -> np.ndarray:
    """List the best, and any other items in the last places."""
    random, places = np.random.default_rng([seed, 3, night.number]), max(1, round(share * N))
    best = night.candidates[:, : N - places]
    others = np.where(night.histories.toarray() > 0, -1.0, random.random(night.scores.shape))
    np.put_along_axis(others, best.astype(np.int64), -1.0, axis=1)
    return np.concatenate([best, np.argsort(-others, axis=1)[:, :places]], axis=1)


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
    lives: dict[str, list[Life]] = {}
    for seed in range(given.seeds):
        shop = draw_shop(given.nights, seed)
        for name, policy in build_policies(given.share, seed).items():
            lives.setdefault(name, []).append(live(shop, policy, given.nights, seed, threads=2))
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
