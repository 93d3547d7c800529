"""Count how often the intervals of `oneclass.off_policy` cover the value of a policy that was not logged.

    python -m benchmarks.off_policy [--seeds 1000] [--users 300] [--rate 0.5]

Each user has a hidden probability to like each of 60 candidates, and guesses of these. Two nights of lists of ten are
logged: with the probability `--rate` a list fills its last four places with drawn items, else with the best guesses, so
that the probability of every shown item is known. Every listed item gets a like by its hidden probability. The value of
the lists that do not explore is estimated from these logs and compared with its expectation.
Prints, for each estimator, the share of seeds whose 95 % interval covers it, the bias with its standard error, and the
root mean squared error. For a small run: `--seeds 50`.
"""

from collections import defaultdict

import numpy as np
import polars as pl

import oneclass
from benchmarks.common import parse_options, print_head, print_row

CANDIDATES, PLACES, DRAWN, NIGHTS = 60, 10, 4, 2


def simulate_lists(seed: int, users: int, rate: float) -> tuple[pl.DataFrame, pl.DataFrame, float]:
    """Draw logged impressions; returns them, the lists whose value is wanted, and that value."""
    random = np.random.default_rng(seed)
    hidden = random.beta(2, 5, (users, CANDIDATES))
    guesses = np.clip(hidden + random.uniform(0.03, 0.15, hidden.shape) * random.normal(size=hidden.shape), 0.01, 0.99)
    order, kept = np.argsort(-guesses, axis=1), PLACES - DRAWN
    hidden, guesses = (np.take_along_axis(values, order, axis=1) for values in (hidden, guesses))
    drawn_share = rate * DRAWN / (CANDIDATES - kept)  # of each candidate beyond the places that are kept
    frames = []
    for night in range(NIGHTS):
        items = np.tile(np.arange(PLACES), (users, 1))
        drawn = kept + np.argsort(random.random((users, CANDIDATES - kept)), axis=1)[:, :DRAWN]
        explores = random.random(users) < rate
        items[explores, kept:] = drawn[explores]
        propensity = np.select([items < kept, items < PLACES], [1.0, 1 - rate + drawn_share], drawn_share)
        likes = random.random(items.shape) < np.take_along_axis(hidden, items, axis=1)
        columns = {"item_id": items, "propensity": propensity, "reaction": likes.astype(float),
                   "expected_reaction": np.take_along_axis(guesses, items, axis=1)}  # fmt: skip
        of_lists = {"list_id": np.repeat([f"{night}/{user}" for user in range(users)], PLACES),
                    "user_id": np.repeat(np.arange(users), PLACES)}  # fmt: skip
        frames.append(pl.DataFrame(of_lists | {name: values.ravel() for name, values in columns.items()}))
    target = {"list_id": [f"{night}/{user}" for night in range(NIGHTS) for user in range(users)]}
    best = pl.DataFrame(target).join(pl.DataFrame({"item_id": np.arange(PLACES)}), how="cross")
    guessed = pl.Series("expected_reaction", np.tile(guesses[:, :PLACES], (NIGHTS, 1)).ravel())
    return pl.concat(frames), best.with_columns(guessed), float(hidden[:, :PLACES].sum() / users)


def main() -> None:
    options = parse_options(__doc__, seeds=1000, users=300, rate=0.5)
    errors, covered = defaultdict(list), defaultdict(int)
    for seed in range(options.seeds):
        impressions, target, value = simulate_lists(seed, options.users, options.rate)
        for estimator, estimate, _, low, high in oneclass.off_policy(impressions, target).table.iter_rows():
            errors[estimator].append(estimate - value)
            covered[estimator] += low <= value <= high
    print_head(["estimator", "95 % intervals that cover", "bias", "root mean squared error"])
    for estimator, found in errors.items():
        bias = f"{np.mean(found):+.4f} ± {np.std(found) / np.sqrt(options.seeds):.4f}"
        share, error = covered[estimator] / options.seeds, np.sqrt(np.mean(np.square(found)))
        print_row([estimator, f"{share:.1%}", bias, f"{error:.4f}"])


if __name__ == "__main__":
    main()
