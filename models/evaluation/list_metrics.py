"""Metrics of the first k items of users' lists by name at any k, `coverage@10` or `calibration[genre]@20`.

`models.evaluation.definitions` has the formulas; `models.evaluation.beyond_accuracy` computes those of exposure.
"""

import re
from typing import NamedTuple

import numpy as np
from numba import njit, prange
from scipy.sparse import csr_matrix

from oneclass.models.evaluation.beyond_accuracy import Exposure
from oneclass.models.evaluation.metrics import Mean, mean_and_error
from oneclass.models.numerics.top_k import as_index_arrays, contains

NAME = re.compile(r"([a-z_]+)(?:\[(.+)\])?@([1-9][0-9]*)")
EXPOSURE = ("coverage", "novelty", "popularity_percentile", "popularity_lift", "gini")
OF_LISTS = ("intra_list_similarity", "serendipity")
CALIBRATION = "calibration"
SMOOTHING = 0.01  # alpha of Steck 2018: keeps the divergence finite where a list lacks a value


class ListMetric(NamedTuple):
    """A metric of lists.

    Attributes:
        name: of its rows, as the caller wrote it.
        base: its name without k.
        attribute: of the items, for `calibration`; else None.
        k: length of the lists.
    """

    name: str
    base: str
    attribute: str | None
    k: int


def find_list_metric(name: str) -> ListMetric | None:
    """Return the metric of lists with a name, in upper or lower case but for the attribute; None if there is none."""
    head, bracket, rest = name.partition("[")
    if not (match := NAME.fullmatch(head.lower() + bracket + rest)):
        return None
    base, attribute, k = match[1], match[2], int(match[3])
    known = base == CALIBRATION if attribute else base in (*EXPOSURE, *OF_LISTS)
    return ListMetric(name, base, attribute, k) if known else None


class Lists(NamedTuple):
    """The heads of the rankings of some users, and what they were made for.

    Attributes:
        recommended: int32 (users, n), the best first, padded with -1.
        histories, excluded, targets: (users, items) CSR with sorted columns; `excluded` has the items left out of the
            rankings.
        train: (training users, items) CSR.
        values: by attribute, (items, values) CSR whose rows sum to 1, or to 0 for an item without a value.
    """

    recommended: np.ndarray
    histories: csr_matrix
    excluded: csr_matrix
    targets: csr_matrix
    train: csr_matrix
    values: dict[str, csr_matrix]


class ListFigures(NamedTuple):
    """Metrics of lists by name: the values of users, float64 (users,), and the means, or figures of all lists."""

    of_users: dict[str, np.ndarray]
    means: dict[str, Mean]


def compute_list_metrics(metrics: list[ListMetric], folds: list[tuple[Lists, np.ndarray]], items: int) -> ListFigures:
    """Compute metrics of the lists of all folds; a user's metric is by the training edges of the user's fold.

    Args:
        folds: the lists of each, and int (columns,), its columns among all `items`.
    """
    of_users: dict[str, np.ndarray] = {}
    means: dict[str, Mean] = {}
    exposures = {k: _count_exposure(folds, items, k) for k in {one.k for one in metrics if one.base in EXPOSURE}}
    for metric in metrics:
        if metric.base in EXPOSURE:
            exposure = exposures[metric.k]
            if (name := f"{metric.base}@{metric.k}") in (found := exposure.metrics(metric.k)):
                means[metric.name] = found[name]
            if (values := exposure.values_of_users(metric.base)) is not None:
                of_users[metric.name] = values
        else:
            values = np.concatenate([_compute_of_users(metric, lists) for lists, _ in folds])
            of_users[metric.name] = values
            if not np.isnan(values).all():
                means[metric.name] = mean_and_error(values)
    return ListFigures(of_users, means)


def _count_exposure(folds: list[tuple[Lists, np.ndarray]], items: int, k: int) -> Exposure:
    degrees, shown = np.zeros(items, dtype=np.int64), []
    for lists, columns in folds:
        of_fold = np.bincount(lists.train.indices, minlength=len(columns))
        exposure = Exposure(of_fold, lists.train.shape[0])
        exposure.add(lists.recommended[:, :k], lists.histories)
        degrees[columns] += of_fold
        of_columns, times = exposure.shown, np.zeros(items, dtype=np.int64)
        times[columns] = of_columns.times
        shown.append(of_columns._replace(times=times))
    joined = Exposure(degrees, folds[0][0].train.shape[0])
    for of_fold in shown:
        joined.take(of_fold)
    return joined


def _compute_of_users(metric: ListMetric, lists: Lists) -> np.ndarray:
    recommended = np.ascontiguousarray(lists.recommended[:, : metric.k])
    if metric.base == CALIBRATION:
        return compute_calibration(recommended, lists.histories, lists.values[metric.attribute or ""])
    if metric.base == "serendipity":
        return compute_serendipity(recommended, lists.excluded, lists.targets, lists.train)
    return compute_intra_list_similarity(recommended, lists.train)


def compute_intra_list_similarity(recommended: np.ndarray, train: csr_matrix) -> np.ndarray:
    """Average the cosines between the columns of a list's items in the training edges, over its pairs of items.

    With v_n the column of item n scaled to length 1, the sum over pairs is (|sum_n v_n|^2 - sum_n |v_n|^2) / 2, so that
    a list costs the training edges of its items. An item without one has the cosine 0 with all others.

    Args:
        recommended: int32 (users, k), padded with -1.
        train: (training users, items) CSR; a stored entry is a like, whatever its value.

    Returns:
        float64 (users,); NaN for a list of fewer than two items.
    """
    by_item = train.tocsc()
    return _average_cosines(recommended, *as_index_arrays(by_item.indptr, by_item.indices), train.shape[0])


@njit(cache=True, parallel=True, nogil=True)
def _average_cosines(recommended, indptr, indices, training_users):
    averages, blocks = np.full(len(recommended), np.nan), min(64, len(recommended))
    for block in prange(blocks):
        sums = np.zeros(training_users)
        for row in range(block * len(recommended) // blocks, (block + 1) * len(recommended) // blocks):
            square, own, count = 0.0, 0, 0
            for item in recommended[row]:
                if item < 0:
                    continue
                count += 1
                degree = indptr[item + 1] - indptr[item]
                own += degree > 0
                for entry in range(indptr[item], indptr[item + 1]):
                    length = 1 / np.sqrt(degree)
                    square += length * (2 * sums[indices[entry]] + length)
                    sums[indices[entry]] += length
            for item in recommended[row]:
                if item >= 0:
                    for entry in range(indptr[item], indptr[item + 1]):
                        sums[indices[entry]] = 0.0
            if count > 1:
                averages[row] = max(square - own, 0.0) / (count * (count - 1))
    return averages


def compute_serendipity(
    recommended: np.ndarray, excluded: csr_matrix, targets: csr_matrix, train: csr_matrix
) -> np.ndarray:
    """Return each list's share of places with a target that is not among the user's k most popular candidates.

    Args:
        recommended: int32 (users, k), padded with -1.
        excluded, targets: (users, items) CSR with sorted columns.
        train: (training users, items) CSR; of equally popular items the lower column comes first.

    Returns:
        float64 (users,).
    """
    order = np.argsort(-np.bincount(train.indices, minlength=train.shape[1]), kind="stable")
    left_out = as_index_arrays(excluded.indptr, excluded.indices)
    return _count_unexpected(recommended, order, *left_out, *as_index_arrays(targets.indptr, targets.indices))


@njit(cache=True, parallel=True, nogil=True)
def _count_unexpected(recommended, order, excluded_indptr, excluded_indices, indptr, indices):
    shares, k = np.zeros(len(recommended)), recommended.shape[1]
    for row in prange(len(recommended)):
        excluded = excluded_indices[excluded_indptr[row] : excluded_indptr[row + 1]]
        targets, popular, at = indices[indptr[row] : indptr[row + 1]], 0, 0
        expected = np.full(k, -1, dtype=np.int64)
        while popular < k and at < len(order):
            if not contains(excluded, order[at]):
                expected[popular] = order[at]
                popular += 1
            at += 1
        hits = 0
        for item in recommended[row]:
            if item >= 0 and contains(targets, item):
                hits += not (expected == item).any()
        shares[row] = hits / k
    return shares


def compute_calibration(recommended: np.ndarray, histories: csr_matrix, values: csr_matrix) -> np.ndarray:
    """Compute Steck's divergence (2018, eq. 5 and 6) of a list's values of an attribute from those of the history.

    KL(p | q') = sum_g p_g log(p_g / q'_g) with q' = (1 - a) q + a p, a = SMOOTHING, where p and q are the averages of
    the items' values in the history and in the list. Items without a value are left out of both.

    Args:
        recommended: int32 (users, k), padded with -1.
        histories: (users, items) CSR; a stored entry is a like, whatever its value.
        values: (items, values) CSR whose rows sum to 1 or 0.

    Returns:
        float64 (users,), 0 for equal shares; NaN for a history without values. A list without any counts as q = 0.
    """
    users = len(recommended)
    there = recommended >= 0
    indptr = np.append(0, np.cumsum(there.sum(axis=1)))
    listed = csr_matrix((np.ones(indptr[-1]), recommended[there], indptr), (users, values.shape[0]))
    known = csr_matrix((np.ones(histories.nnz), histories.indices, histories.indptr), histories.shape)
    wanted, shown = (_average_values(items, values) for items in (known, listed))
    has_values = np.diff(wanted.indptr) > 0
    rows = np.repeat(np.arange(users), np.diff(wanted.indptr))
    p, q = wanted.data, np.asarray(shown[rows, wanted.indices]).ravel()
    terms = p * np.log(p / ((1 - SMOOTHING) * q + SMOOTHING * p))
    return np.where(has_values, np.bincount(rows, weights=terms, minlength=users), np.nan)


def _average_values(items: csr_matrix, values: csr_matrix) -> csr_matrix:
    sums = csr_matrix(items @ values)
    totals = np.asarray(sums.sum(axis=1)).ravel()
    sums.data /= np.repeat(totals, np.diff(sums.indptr))
    return sums
