"""Correlate the predictability of users with the accuracy of their lists, in homes with finished runs.

    python -m flows.backfill --dataset ml-1m --source ratings.csv --home /tmp/home --models popularity,mrf_dense,wmf
    python -m benchmarks.accuracy.predictability /tmp/home ml-1m ...

For each data set and model of its last run: Spearman's rank correlation over the test users of strong_generalization
between `models.evaluation.predictability`, which sees only their histories, and nDCG@100 of their held-out likes, with
its standard error by the Fisher transformation. Beside it the correlation of the length of the history.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from benchmarks.accuracy.bayesian_models import print_table
from benchmarks.accuracy.like_intervals import find_matrices, load_fits
from oneclass.models.evaluation.metrics import compute_ndcg
from oneclass.models.evaluation.predictability import predictability
from oneclass.models.evaluation.ranking import rank_targets
from oneclass.tasks.protocols import list_splits
from oneclass.tasks.stores import fits, matrices
from oneclass.tasks.stores.home import Home, Limits

USERS_PER_BLOCK = 256


def load_users(home: Home, model: str, digest: str) -> np.ndarray:
    """Compute predictability, length of the history and nDCG@100 of each test user of a fit, float64 (3, users)."""
    part = matrices.load_split(home, find_matrices(home, model, digest)).parts["test"]
    fit, blocks = fits.load_fit(home, model, digest), []
    tested = np.flatnonzero((np.diff(part.targets.indptr) > 0) & (np.diff(part.histories.indptr) > 0))
    for first in range(0, len(tested), USERS_PER_BLOCK):
        chosen = tested[first : first + USERS_PER_BLOCK]
        histories = part.histories[chosen]
        scores = fit.scores(histories)
        quality = compute_ndcg(rank_targets(scores, histories, part.targets[chosen]), 100)
        blocks.append([predictability(scores, histories), np.diff(histories.indptr), quality])
    return np.concatenate(blocks, axis=1)


def evaluate_home(home: Home) -> Iterator[dict[str, str]]:
    """Yield the rows of the table."""
    digests = load_fits(home)
    splits = list_splits("strong_generalization", {split for split, _ in digests})
    for model in sorted({model for split, model in digests if split in splits}):
        of_folds = [load_users(home, model, digests[split, model]) for split in splits]
        figures, lengths, quality = np.concatenate(of_folds, axis=1)
        rho, of_length = (float(spearmanr(one, quality).statistic) for one in (figures, lengths))
        error = (1 - rho**2) / np.sqrt(len(quality) - 3)
        yield {
            "log": home.dataset,
            "model": model,
            "users": f"{len(quality):,}",
            "nDCG@100": f"{quality.mean():.4f}",
            "rho": f"{rho:.3f} ± {error:.3f}",
            "of the length": f"{of_length:.3f}",
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("home", type=Path)
    parser.add_argument("datasets", nargs="+", metavar="dataset")
    options = parser.parse_args()
    print_table([row for name in options.datasets for row in evaluate_home(Home(options.home, name, Limits()))])


if __name__ == "__main__":
    main()
