"""Re-rank candidates for variety: max-sum diversification, greedily.

Gollapudi, S. and Sharma, A. (2009): An axiomatic approach for result diversification. WWW 2009, 381-390.

A user's candidates i have scores s_i and unit vectors v_i. The relevance is r_i = (s_i - min s) / (max s - min s) over
the candidates, so that a strength t in [0, 1] means the same for every user and model. Given the picked ones S, the
next is the candidate of the largest

    (1 - t) r_i - 2t / (n - 1) sum_{j in S} v_i . v_j.

A list of n then trades its mean relevance against its mean product of two vectors, each of n (n - 1) / 2 pairs. At
t = 0 it keeps the order of the scores. Ties go to the candidate that comes first. A list shows what is picked in the
order of the scores: that costs no variety and least accuracy.
"""

import dataclasses

import numpy as np
from numba import njit, prange
from scipy.sparse import csr_matrix

from oneclass.models.numerics.constrained_top_k import Constraints, select_top_items
from oneclass.models.numerics.random_numbers import bits, purpose, stream
from oneclass.models.numerics.top_k import as_index_arrays

WORD_BITS = 64  # signs of a draw
PROJECTED_WIDTH = 4 * WORD_BITS
CANDIDATES_PER_PLACE = 5


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Scale rows to length 1, float32; a row of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, where=lengths > 0, out=np.zeros(vectors.shape)).astype(np.float32)


def project_items(interactions: csr_matrix, *, seed: int = 0) -> np.ndarray:
    """Represent items by random projections of their centred columns: the products are about the correlations of likes.

    v_i = R' (x_i - m_i) / |R' (x_i - m_i)| with R (users, PROJECTED_WIDTH) of random signs (Achlioptas 2003) and m_i
    the share of users who like i. Centred, two items are not alike because both are popular. The product of two
    projections has a standard deviation of 1 / sqrt(PROJECTED_WIDTH), 0.06, around the correlation, and less where this
    is large.

    Args:
        interactions: (users, items) CSR; a stored entry is a like, whatever its value.

    Returns:
        float32 (items, PROJECTED_WIDTH), rows of length 1; of zeros for an item that nobody likes, or everybody.
    """
    users, items = interactions.shape
    sums, totals = np.zeros((items, PROJECTED_WIDTH), dtype=np.float32), np.zeros(PROJECTED_WIDTH)
    indptr, indices = as_index_arrays(interactions.indptr, interactions.indices)
    _add_signs(indptr, indices, seed, purpose("item projection"), sums, totals)
    degrees = np.bincount(indices, minlength=items)
    return unit_rows(np.where((degrees < users)[:, None], sums - np.outer(degrees / users, totals), 0))


@njit(cache=True, parallel=True, nogil=True)
def _add_signs(indptr, indices, seed, purpose, sums, totals):
    """Add each user's signs to the rows of the liked items, and to `totals`; whole numbers, exact in any order."""
    for word in prange(len(totals) // WORD_BITS):
        signs, first = np.empty(WORD_BITS, dtype=np.float32), word * WORD_BITS
        for user in range(len(indptr) - 1):
            drawn = bits(stream(seed, purpose, 0, user), word)
            for bit in range(WORD_BITS):
                signs[bit] = 1.0 if (drawn >> np.uint64(bit)) & np.uint64(1) else -1.0
                totals[first + bit] += signs[bit]
            for entry in range(indptr[user], indptr[user + 1]):
                row = sums[indices[entry], first : first + WORD_BITS]
                for bit in range(WORD_BITS):
                    row[bit] += signs[bit]


def rerank(candidates: np.ndarray, scores: np.ndarray, vectors: np.ndarray, n: int, *, strength: float) -> np.ndarray:
    """Pick each user's candidates one after another, for relevance and variety; the first n make the list.

    Args:
        candidates: int32 (block, N), rows of `vectors`, best first, padded with -1 at the end.
        scores: float32 (block, N), finite where there is a candidate.
        vectors: float32 (items, K), rows of length 1 or 0 (`unit_rows`).
        n: length of the lists.
        strength: t, from 0 (the order of the scores) to 1 (variety alone).

    Returns:
        int64 (block, N): positions among the user's candidates, in the order of the picks; -1 where there are no more.
    """
    picked = np.full(candidates.shape, -1, dtype=np.int64)
    _rerank_rows(
        np.ascontiguousarray(candidates, dtype=np.int32),
        np.ascontiguousarray(scores, dtype=np.float32),
        np.ascontiguousarray(vectors, dtype=np.float32),
        float(strength),
        n,
        picked,
    )
    return picked


@njit(cache=True, parallel=True, nogil=True)
def _rerank_rows(candidates, scores, vectors, strength, n, picked):
    for user in prange(len(candidates)):
        count = 0
        while count < candidates.shape[1] and candidates[user, count] >= 0:
            count += 1
        relevance = scale_relevance(scores[user, :count])
        columns = candidates[user, :count]
        _pick(columns, relevance, vectors, strength, n, picked[user])


@njit(cache=True, nogil=True)
def scale_relevance(scores):
    """Scale scores linearly to [0, 1], float64; equal scores are all 0."""
    relevance = np.zeros(len(scores))
    if len(scores) == 0:
        return relevance
    low, high = scores.min(), scores.max()
    if high > low:
        for place in range(len(scores)):
            relevance[place] = (np.float64(scores[place]) - low) / (np.float64(high) - low)
    return relevance


@njit(cache=True, nogil=True, fastmath={"contract"})
def similarity(vectors, one, other):
    """(1 + v_i . v_j) / 2 of two items, summed in the order of the factors."""
    product = 0.0
    for factor in range(vectors.shape[1]):
        product += np.float64(vectors[one, factor]) * np.float64(vectors[other, factor])
    return (1.0 + product) / 2.0


@njit(cache=True, nogil=True)
def _pick(columns, relevance, vectors, strength, n, picked):
    count, weight = len(columns), 2.0 * strength / max(n - 1, 1)
    sums, is_left = np.zeros(count), np.ones(count, dtype=np.bool_)
    for rank in range(count):
        best, best_value = -1, -np.inf
        for place in range(count):
            value = (1.0 - strength) * relevance[place] - weight * sums[place]
            if is_left[place] and value > best_value:
                best, best_value = place, value
        picked[rank], is_left[best] = best, False
        for place in range(count):
            if is_left[place]:
                sums[place] += 2.0 * similarity(vectors, columns[best], columns[place]) - 1.0


def select_diverse_items(
    scores: np.ndarray,
    indptr: np.ndarray,
    indices: np.ndarray,
    sets: np.ndarray,
    constraints: Constraints,
    n: int,
    *,
    vectors: np.ndarray,
    strength: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Pick n items for each user by max-sum diversification, under constraints.

    The CANDIDATES_PER_PLACE * n best items, boosts included, are put in the order of the picks. `select_top_items`
    follows this order, and then the other items, so that pins and limits hold, and a list is short only if nothing that
    is left fits into it.

    Args:
        scores, indptr, indices, sets, constraints, n: as in `select_top_items`; no score is NaN.
        vectors: as in `rerank`.
        strength: as in `rerank`.

    Returns:
        As `select_top_items`: pinned items first, then the picks by their scores.
    """
    none = np.empty(0, dtype=np.int32)
    plain = dataclasses.replace(constraints, boosts=None, pinned=none, limits=none)
    if constraints.boosts is not None:
        _, best = select_top_items(scores, indptr, indices, sets, plain, n)
        spread = best[:, 0] - np.min(best, axis=1, where=best > -np.inf, initial=np.inf)
        scores = scores + constraints.boosts[sets] * np.where(np.isfinite(spread), spread, 0)[:, None].astype(
            np.float32
        )
    candidates, values = select_top_items(scores, indptr, indices, sets, plain, CANDIDATES_PER_PLACE * n)
    candidates = np.where(np.isfinite(values), candidates, -1)
    picks = rerank(candidates, values, vectors, n, strength=strength)
    users, places = np.nonzero(picks >= 0)
    in_order = scores - scores.max(axis=1, keepdims=True) - 1  # of the others, all below zero
    in_order[users, candidates[users, picks[users, places]]] = picks.shape[1] - places
    ids, _ = select_top_items(in_order, indptr, indices, sets, dataclasses.replace(constraints, boosts=None), n)
    chosen = np.where(ids >= 0, np.take_along_axis(scores, np.maximum(ids, 0), axis=1), np.float32(-np.inf))
    is_pinned = np.isin(ids, constraints.pinned)
    order = np.lexsort((np.where(is_pinned, np.arange(n), -chosen), ~is_pinned))
    return np.take_along_axis(ids, order, axis=1), np.take_along_axis(chosen, order, axis=1)
