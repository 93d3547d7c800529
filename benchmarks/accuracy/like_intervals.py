"""Count how often intervals of `like` cover the truth, before and after calibration, in a home with a finished run.

    python -m flows.backfill --dataset demo --home /tmp/home
    python -m benchmarks.accuracy.like_intervals /tmp/home demo

A pair's interval is that of the Beta distribution with the mean and the standard deviation that would be published. The
calibration is fitted as in a run, on the validation users. The pairs are the held-out likes of leave_one_out and as
many negatives of the same users, unseen by the calibration; with `binarize.explicit_negatives` also the held-out likes
and explicit negatives of the test users of strong_generalization. For each model with a `like`, over all pairs and over
those whose mean is below .2:

    mean, truth    averages of the mean, and of its target
    error          root mean squared difference from the truth, if it is known
    50 %, ...      share of the pairs whose truth is in the interval

The demo's truth is the ratio of densities (`evaluation.calibration`, density_ratio), and its like probability for
explicit negatives. In other logs only `mean` and `truth` can be compared, because a pair is known as a like or not; the
other columns are empty.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.stats import beta

from benchmarks.accuracy.bayesian_models import print_table
from oneclass.tasks.evaluate.calibration import MAX_TRUTH_USERS, load_truth, true_probabilities
from oneclass.tasks.evaluate.explicit_negatives import has_both_classes, iterate_pair_blocks
from oneclass.tasks.protocols import choose_publish_protocol, find_validation_splits, list_splits
from oneclass.tasks.publish.calibrate import calibrate_like
from oneclass.tasks.recommend.companion import has_like
from oneclass.tasks.recommend.like_calibration import IDENTITY, Like
from oneclass.tasks.stores import fits, matrices, warehouse
from oneclass.tasks.stores.home import Home, Limits

LEVELS = (0.5, 0.8, 0.9, 0.95)
LOW_MEAN = 0.2
Pairs = tuple[Like, np.ndarray, np.ndarray, bool]  # `like`, truth, weights, and whether the truth is known


def compute_levels(mean: np.ndarray, deviation: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Compute the smallest level whose interval holds the truth, float64 (pairs,)."""
    mean = np.clip(mean.astype(np.float64), 1e-6, 1 - 1e-6)
    size = mean * (1 - mean) / np.minimum(deviation**2, 0.999 * mean * (1 - mean)) - 1
    return np.abs(2 * beta.cdf(truth, mean * size, (1 - mean) * size) - 1)


def summarize_pairs(like: Like, truth: np.ndarray, weights: np.ndarray, *, is_known: bool) -> Iterator[dict[str, str]]:
    """Yield the table's cells for all pairs, and for those with a low mean."""
    for label, chosen in (("all", like[0] >= 0), (f"below {LOW_MEAN}", like[0] < LOW_MEAN)):
        if not chosen.any():
            continue
        mean, deviation, target, w = (array[chosen] for array in (*like, truth, weights))
        cells = {"pairs": label, "number": f"{len(w):,}"}
        cells |= {"mean": f"{np.average(mean, weights=w):.3f}", "truth": f"{np.average(target, weights=w):.3f}"}
        if is_known:
            levels = compute_levels(mean, deviation, target)
            cells["error"] = f"{np.sqrt(np.average((mean - target) ** 2, weights=w)):.3f}"
            cells |= {f"{level:.0%}": f"{np.average(levels <= level, weights=w):.3f}" for level in LEVELS}
        yield cells


def load_fits(home: Home) -> dict[tuple[str, str], str]:
    """Return the digests of the fits of the last run, by split and model."""
    with warehouse.open_warehouse(home, read_only=True) as connection:
        query = """select protocol, model, digest from operations.model_fits
            where run_id = (select run_id from operations.model_fits order by rowid desc limit 1)"""
        return {(split, model): digest for split, model, digest in connection.execute(query).fetchall()}


def find_matrices(home: Home, model: str, digest: str) -> str:
    """Return the digest of the matrices of a fit."""
    matrices_digest = fits.find_matrices_digest(home, model, digest)
    assert matrices_digest is not None
    return matrices_digest


def draw_pairs(home: Home, name: str, digest: str) -> Pairs:
    """Draw the pairs of leave_one_out: their `like`, truth and weights, (pairs,), and whether the truth is known."""
    model, split = fits.load_fit(home, name, digest), matrices.load_split(home, find_matrices(home, name, digest))
    part, truth = split.parts["test"], load_truth(home, split)
    tested = np.flatnonzero(np.diff(part.targets.indptr))
    tested = tested[:: -(-len(tested) // MAX_TRUTH_USERS)]
    targets, histories = part.targets[tested], part.histories[tested]
    assert part.rows is not None
    users, negatives = part.rows[tested], model.negative_distribution()
    assert negatives is not None
    negatives = negatives.with_statistics(split.train)
    items = np.stack([targets.indices, negatives.draw(split.histories, users, model.seed)], axis=1)
    weights = np.stack(negatives.weights(split.histories, users, targets.data), axis=1) * (items >= 0)
    like, exists = model.like(histories, users=users, items=items), weights > 0
    assert like is not None
    observed = np.tile([1.0, 0.0], (len(users), 1))
    if truth is not None:
        of_users = truth.of_users(users), users, np.diff(histories.indptr)
        observed = true_probabilities(negatives, split.train, *of_users, np.maximum(items, 0))[0]
    return (like[0][exists], like[1][exists]), observed[exists], weights[exists], truth is not None


def load_explicit_pairs(home: Home, name: str, digest: str) -> Pairs | None:
    """Load the held-out likes and explicit negatives of test users as `draw_pairs` does; None without any."""
    model, split = fits.load_fit(home, name, digest), matrices.load_split(home, find_matrices(home, name, digest))
    part = split.parts["test"]
    if not has_both_classes(part):
        return None
    truth = load_truth(home, replace(split, users=part.users))
    means, deviations, targets = [], [], []
    for users, items, is_like in iterate_pair_blocks(part):
        exists = items >= 0
        like = model.like(part.histories[users], items=items)
        assert like is not None
        means.append(like[0][exists])
        deviations.append(like[1][exists])
        of_pairs = np.broadcast_to(users[:, None], items.shape)[exists], items[exists]
        targets.append(is_like[exists].astype(float) if truth is None else truth.pair_probabilities(*of_pairs))
    observed = np.concatenate(targets)
    return (np.concatenate(means), np.concatenate(deviations)), observed, np.ones(len(observed)), truth is not None


def evaluate_home(home: Home) -> Iterator[dict[str, str]]:
    """Yield the rows of the table."""
    digests = load_fits(home)
    splits = {split for split, _ in digests}
    protocol = choose_publish_protocol("auto", splits)
    assert protocol is not None, "the run has no validation users"
    for (name, model), digest in digests.items():
        if name != "leave_one_out" or not has_like(model):
            continue
        validation, unseen = (
            [(find_matrices(home, model, digests[split, model]), digests[split, model]) for split in names]
            for names in (find_validation_splits(protocol, splits), list_splits("strong_generalization", splits))
        )
        calibrations = calibrate_like(home, model, validation, unseen)
        explicit = load_explicit_pairs(home, model, unseen[0][1]) if unseen else None
        for negatives, calibration, pairs in (
            ("sampled", calibrations.sampled, draw_pairs(home, model, digest)),
            ("explicit", calibrations.explicit, explicit),
        ):
            for label, applied in (("raw", IDENTITY), ("calibrated", calibration)):
                if pairs is not None and applied is not None:
                    like, truth, weights, is_known = pairs
                    for cells in summarize_pairs(applied.apply(like), truth, weights, is_known=is_known):
                        yield {"model": model, "negatives": negatives, "like": label} | cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("home", type=Path)
    parser.add_argument("dataset")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    print_table(list(evaluate_home(Home(options.home, options.dataset, Limits(options.threads, 4 << 30)))))


if __name__ == "__main__":
    main()
