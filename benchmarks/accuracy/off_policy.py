"""How often the intervals of `oneclass.off_policy` cover the value of a policy that was not logged.

    python -m benchmarks.accuracy.off_policy [--seeds 1000] [--users 300] [--rate 0.5]

Each user has a probability to like each of 60 candidates, hidden, and a posterior around it: means off by its standard
deviations, as a calibrated one is. Two nights of lists of ten places, four of which explore by `mixture`, are logged
with their propensities (`tasks/recommend/exploration.py`), and every listed item gets a like by its hidden probability.
The value of the lists that do not explore is estimated from these logs and compared with its expectation under the
hidden probabilities. `doubly_robust` takes the posterior means as guesses. Prints the share of seeds whose 95 %
interval covers it, the bias with its standard error, and the root mean squared error.
"""

import argparse
from typing import NamedTuple

import numpy as np
import polars as pl

from oneclass.models.evaluation.off_policy import off_policy
from oneclass.tasks.recommend.exploration import Exploration, pick_items

CANDIDATES, N, NIGHTS = 60, 10, 2


class LoggedShop(NamedTuple):
    """Logged impressions, the lists whose value is wanted, and that value."""

    impressions: pl.DataFrame
    target: pl.DataFrame
    value: float


def simulate(seed: int, users: int, rate: float) -> LoggedShop:
    """Draw probabilities, posteriors, lists and reactions."""
    random = np.random.default_rng(seed)
    deviations = random.uniform(0.03, 0.15, (users, CANDIDATES))
    hidden = random.beta(2, 5, (users, CANDIDATES))
    means = np.clip(hidden + deviations * random.normal(size=hidden.shape), 0.01, 0.99)
    order = np.argsort(-means, axis=1)
    hidden, means, deviations = (np.take_along_axis(part, order, axis=1) for part in (hidden, means, deviations))
    columns = np.broadcast_to(np.arange(CANDIDATES, dtype=np.int32), means.shape)
    frames, rows = [], np.arange(users)
    for night in range(NIGHTS):
        policy = Exploration("mixture", share=0.4, bonus=0.0, rate=rate, night=night, seed=seed)
        picks, propensities = pick_items(policy, columns, (means, deviations), rows, N, np.empty(0, dtype=np.int32))
        likes = random.random(picks.shape) < np.take_along_axis(hidden, picks, axis=1)
        frames.append(
            pl.DataFrame(
                {
                    "list_id": np.repeat([f"{night}/{user}" for user in rows], N),
                    "user_id": np.repeat(rows, N),
                    "item_id": picks.ravel(),
                    "propensity": propensities.ravel(),
                    "reaction": likes.ravel().astype(float),
                    "expected_reaction": np.take_along_axis(means, picks, axis=1).ravel(),
                }
            )
        )
    impressions = pl.concat(frames)
    target = (
        impressions.select("list_id", "user_id")
        .unique(maintain_order=True)
        .join(
            pl.DataFrame(
                {
                    "user_id": np.repeat(rows, N),
                    "item_id": columns[:, :N].ravel().astype(np.int64),
                    "expected_reaction": means[:, :N].ravel(),
                }
            ),
            on="user_id",
        )
        .drop("user_id")
    )
    return LoggedShop(impressions, target, float(hidden[:, :N].sum() / users))


def main() -> None:
    """Print a line for each estimator."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--users", type=int, default=300)
    parser.add_argument("--rate", type=float, default=0.5)
    given = parser.parse_args()
    errors: dict[str, list[float]] = {}
    covered: dict[str, int] = {}
    for seed in range(given.seeds):
        shop = simulate(seed, given.users, given.rate)
        found = off_policy(shop.impressions, shop.target)
        for name, value, _, low, high in found.table.iter_rows():
            errors.setdefault(name, []).append(value - shop.value)
            covered[name] = covered.get(name, 0) + (low <= shop.value <= high)
    print("| estimator | 95 % intervals that cover | bias | root mean squared error |")
    print("|---|---|---|---|")
    for name, found_errors in errors.items():
        bias, error = np.mean(found_errors), np.std(found_errors) / np.sqrt(given.seeds)
        root = np.sqrt(np.mean(np.square(found_errors)))
        print(f"| {name} | {covered[name] / given.seeds:.1%} | {bias:+.4f} ± {error:.4f} | {root:.4f} |")


if __name__ == "__main__":
    main()
