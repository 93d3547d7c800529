"""Simulate a shop for 90 nights with lists that explore or not: clicks, regret, and likes of new items.

    python -m benchmarks.accuracy.exploration [--nights 90] [--seeds 3] [--share 0.2] [--save FILE]

The shop is that of `tasks/publish/simulated_shop.py`, with drawn traits. Policies differ in the last places of the
lists, `--share` of them (`tasks/recommend/exploration.py`): greedy takes the best by the published score, `random` any
items, `thompson`, `bonus` and `mixture` work like `publish.explore`. Prints, with standard errors over the seeds: the
clicks of the first week against greedy's, the regret of the last ten nights, the likes of new items, and the first
night with as many of these as greedy has in all. `--save` draws the regret by night.
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

TRAITS, FIRST_NIGHTS, LAST_NIGHTS = 6, 7, 10


def draw_shop(nights: int, seed: int) -> Shop:
    """Draw traits, biases and popularities."""
    random, items = np.random.default_rng(seed), FIRST_ITEMS + NEW_ITEMS * nights
    scale = np.sqrt(2.0 / np.sqrt(TRAITS))  # so that u'v has a standard deviation of 2
    users, traits = (scale * random.normal(size=(count, TRAITS)) for count in (USERS, items))
    probability = expit(users @ traits.T + random.normal(-2.5, 0.7, items))
    return Shop(probability, random.pareto(1.5, items) + 0.1)


def build_policies(share: float, seed: int) -> dict[str, Policy]:
    """Build the policies by name."""
    exploring = (Exploration(name, share, bonus=1.0, rate=0.5, night=0, seed=seed)
                 for name in ("bonus", "thompson", "mixture"))  # fmt: skip
    return {
        "greedy": list_best,
        "random": partial(list_random_tail, share, seed),
        **{one.policy: explore(one) for one in exploring},
    }


def list_random_tail(share: float, seed: int, night: Night) -> np.ndarray:
    """List the best items, and random others in the last places."""
    generator, explored = np.random.default_rng([seed, 3, night.number]), max(1, round(share * N))
    best = night.candidates[:, : N - explored]
    others = np.where(night.histories.toarray() > 0, -1.0, generator.random(night.scores.shape))
    np.put_along_axis(others, best.astype(np.int64), -1.0, axis=1)
    return np.concatenate([best, np.argsort(-others, axis=1)[:, :explored]], axis=1)


def format_mean(values: list[float], digits: int) -> str:
    """Format a mean with its standard error over the seeds."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):.{digits}f} ± {error:.{digits}f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=90)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    lives: dict[str, list[Life]] = {}
    for seed in range(options.seeds):
        shop = draw_shop(options.nights, seed)
        for name, policy in build_policies(options.share, seed).items():
            lives.setdefault(name, []).append(live(shop, policy, options.nights, seed, threads=2))
    print(
        "| policy | clicks of the first week, % of greedy's | regret of the last ten nights | likes of new items "
        "| night by which greedy's are found |\n|---|---|---|---|---|"
    )
    for policy, of_seeds in lives.items():
        pairs = list(zip(of_seeds, lives["greedy"], strict=True))
        week = [100 * one.clicks[:FIRST_NIGHTS].sum() / greedy.clicks[:FIRST_NIGHTS].sum() for one, greedy in pairs]
        reached = [
            float(np.searchsorted(np.cumsum(one.new_likes), greedy.new_likes.sum()) + 1) for one, greedy in pairs
        ]
        cells = [format_mean(week, 1), format_mean([one.regret[-LAST_NIGHTS:].mean() for one in of_seeds], 3)]
        cells.append(format_mean([one.new_likes.sum() for one in of_seeds], 0))
        print(f"| {policy} | {' | '.join(cells)} | {format_mean(reached, 0)} |", flush=True)
    if options.save:
        draw_regret({policy: np.mean([one.regret for one in of], axis=0) for policy, of in lives.items()}, options.save)


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
