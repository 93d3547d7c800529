"""The error of a difference over folds, against how much the differences of simulated logs vary."""

import numpy as np

from oneclass.models.evaluation.metrics import compare_paired

USERS, ITEMS, FOLDS, K = 60, 40, 5, 20
DISCOUNTS = 1 / np.log2(np.arange(2, K + 2))


def draw_log(generator):
    """Draw twelve items for each user, of a long tail and preferably of the user's taste: bool (USERS, ITEMS)."""
    is_liked = generator.integers(3, size=(USERS, 1)) == generator.integers(3, size=ITEMS)
    keys = generator.gumbel(size=(USERS, ITEMS)) + np.log((1 + np.arange(ITEMS)) ** -0.7 * np.where(is_liked, 4, 1))
    return keys >= np.sort(keys, axis=1)[:, -12:-11]


def compute_ndcg(scores, histories, targets):
    top = np.argsort(-np.where(histories, -np.inf, scores), axis=1, kind="stable")[:, :K]
    best = [DISCOUNTS[:count].sum() for count in targets.sum(axis=1)]
    return (np.take_along_axis(targets, top, axis=1) * DISCOUNTS).sum(axis=1) / best


def judge_folds(log, generator):
    """Return each user's nDCG by cosines of items and by popularity, fitted on the users of the other folds."""
    values, of_fold = [], np.arange(USERS) % FOLDS
    for fold in range(FOLDS):
        train, users = log[of_fold != fold].astype(float), log[of_fold == fold]
        targets = users & (generator.random(users.shape) < 0.25)
        with_targets = targets.any(axis=1)
        histories, targets = (users & ~targets)[with_targets], targets[with_targets]
        degrees = train.sum(axis=0)
        cosines = train.T @ train / np.sqrt(np.maximum(np.outer(degrees, degrees), 1))
        np.fill_diagonal(cosines, 0)
        scores = histories @ cosines, np.broadcast_to(degrees, histories.shape)
        values.append([compute_ndcg(one, histories, targets) for one in scores])
    return np.hstack(values)


def test_the_stated_error_covers_what_differences_over_overlapping_folds_vary_by():
    judged = []
    for seed in range(150):
        generator = np.random.default_rng(seed)
        judged.append(judge_folds(draw_log(generator), generator))
    spread = np.std([compare_paired(*values).difference for values in judged], ddof=1)
    plain, corrected = (
        np.sqrt(np.mean([compare_paired(*values, folds).standard_error ** 2 for values in judged]))
        for folds in (1, FOLDS)
    )
    assert spread > 1.1 * plain  # as if folds were independent, errors are too small
    assert 0.7 * corrected < spread < corrected
