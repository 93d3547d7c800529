"""Load the matrices by which settings are chosen, or a sample of them, and evaluate models on them."""

import functools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from oneclass.models.base import Model
from oneclass.models.evaluation.holdout import choose_held_out_edges, split_matrix
from oneclass.models.numerics.sequential_histories import copy_order
from oneclass.tasks.evaluate.ranking import rank_targets_by_score, users_with_targets
from oneclass.tasks.stores import matrices
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import Part, SplitMatrices

GIVEN_SHARE = 0.2  # share of a user's training edges in the validation part of `given`
MAX_VALIDATION_USERS = 1000  # of a sample
MAX_JUDGING_USERS = 4000  # of whole logs, by whom fits are compared and blended
MIN_USERS = 50  # fewer validation users are too few to choose by


@functools.lru_cache(maxsize=5)  # every trial needs the same parts, those of five folds
def load_validation(
    home: Home, matrices_digest: str, seed: int, edges: int | None = None, items: int | None = None
) -> SplitMatrices:
    """Load the training and validation parts of a stored split, or a sample of them, as `select_validation`.

    Args:
        seed: of the hash that draws a validation part, if the split has none, and of the sample.
        edges: sample the training users so that they have about this many edges; None for all.
        items: number of items to keep, those with the most edges of these users; None for all.
    """
    split = select_validation(matrices.load_split(home, matrices_digest, parts=("validation",)), seed)
    is_sample = (edges or math.inf) < split.train.nnz or (items or math.inf) < split.train.shape[1]
    return _sample_log(split, edges or split.train.nnz, items, seed) if is_sample else split


def select_validation(split: SplitMatrices, seed: int) -> SplitMatrices:
    """Return the training and validation parts of a split; without the latter it is drawn from the training edges."""
    histories, part = split.histories, split.parts.get("validation")
    if part is None:
        if (chosen := split.latest_mask) is None:
            degrees = np.diff(split.train.indptr)
            counts = degrees >= 2 if split.protocol == "leave_one_out" else np.floor(GIVEN_SHARE * degrees)
            chosen = choose_held_out_edges(split.train, counts, seed, split.users, split.items)
        train, targets = split_matrix(split.train, chosen)
        rows = np.flatnonzero((np.diff(train.indptr) > 0) & (np.diff(targets.indptr) > 0)).astype(np.int32)
        histories = copy_order(histories, train, ~chosen)
        part = Part(histories[rows], targets[rows], split.users[rows], rows)
    elif part.stored_histories is None:
        part = split.users_of("validation", 0, None)
    # What the split has for each training edge, these histories have themselves.
    of_edges = dict.fromkeys(["recency_ranks", "event_ages", "latest_mask"])
    return replace(split, train=histories, parts={"validation": part}, **of_edges)


def _sample_log(split: SplitMatrices, edges: int, items: int | None, seed: int) -> SplitMatrices:
    """Sample users, keep the items most of them have, and at most MAX_VALIDATION_USERS validation users."""

    def draw_rows(rows: np.ndarray, most: int) -> np.ndarray:
        return np.sort(generator.choice(rows, most, replace=False)) if most < len(rows) else rows

    generator, users, part = np.random.default_rng(seed), split.train.shape[0], split.parts["validation"]
    trained = draw_rows(np.arange(users), max(1, round(users * edges / split.train.nnz)))
    train, negatives, features = split.train[trained], split.explicit_negatives, split.item_features
    degrees = np.bincount(train.indices, minlength=train.shape[1])
    most_popular = np.argsort(-degrees, kind="stable")[:items]
    known = np.sort(most_popular[degrees[most_popular] > 0])
    eligible = np.diff(part.targets[:, known].indptr) > 0
    if part.rows is not None:
        eligible &= np.isin(part.rows, trained)
    part = part.select(draw_rows(np.flatnonzero(eligible), MAX_VALIDATION_USERS))
    rows = None if part.rows is None else np.searchsorted(trained, part.rows).astype(np.int32)
    histories, targets = (matrix[:, known].tocsr() for matrix in (part.histories, part.targets))
    return replace(
        split,
        train=train[:, known].tocsr(),
        parts={"validation": replace(part, stored_histories=histories, targets=targets, rows=rows)},
        users=split.users[trained],
        items=split.items[known],
        explicit_negatives=None if negatives is None else negatives[trained][:, known].tocsr(),
        item_features=None if features is None else features[known],
    )


def evaluate_model(models: Sequence[Model], parts: Sequence[Part], metric: str) -> tuple[np.ndarray, str]:
    """Return the metric of the best score of a model, fitted for each part, of all users, and the score's name."""
    if not (ranked := list(filter(None, map(rank_targets_by_score, models, parts)))):
        raise ValueError("no validation user has an edge to be found")
    values = {score: np.concatenate([ranks[score].of_users[metric] for ranks in ranked]) for score in ranked[0]}
    best = max(values, key=lambda score: values[score].mean())
    return values[best], best


def sample_users(part: Part) -> Part:
    """Select at most MAX_JUDGING_USERS users who have an edge to find, spread evenly over the part."""
    users = users_with_targets(part)
    count = min(MAX_JUDGING_USERS, len(users))
    return part.select(users[np.arange(count) * len(users) // max(count, 1)])
