"""Three greedy re-rankers that trade relevance against the similarity of the items within a list.

Carbonell, J. and Goldstein, J. (1998): The use of MMR, diversity-based reranking for reordering documents and producing
summaries. SIGIR 1998, 335-336.
Chen, L., Zhang, G. and Zhou, E. (2018): Fast greedy MAP inference for determinantal point process to improve
recommendation diversity. NeurIPS 2018.
Gollapudi, S. and Sharma, A. (2009): An axiomatic approach for result diversification. WWW 2009, 381-390.

A user's candidates i have scores s_i and unit vectors v_i. The relevance is r_i = (s_i - min s) / (max s - min s) over
the candidates, so that a strength means the same for every user and model; s(i, j) = (1 + v_i . v_j) / 2 is the
similarity, and t in [0, 1] the strength. At t = 0 all keep the order of the scores. Ties go to the candidate that
comes first. A list shows what is picked in the order of the scores: that costs no variety and least accuracy.

`mmr` picks in turn the candidate of the largest

    (1 - t) r_i - t max_{j in S} s(i, j)

given the picked ones S; the maximum over an empty S is 0.

`dpp` picks in turn the candidate that raises most

    (1 - t) sum_{i in S} r_i + t log det s(S, S),

the log-probability of a determinantal point process with the kernel exp((r_i + r_j) (1 - t) / 2t) s(i, j), its eq. 14.
The gain of i is (1 - t) r_i + t log d_i^2, where d_i^2 = det s(S + i) / det s(S) = 1 - |c_i|^2, and c_i is i's row of
the Cholesky factor. Picking j appends to every other c_i

    e_i = (s(j, i) - c_j . c_i) / d_j,    d_i^2 <- d_i^2 - e_i^2,

so a list of n out of N candidates costs O(n^2 N) instead of a determinant for each. d_i^2 is kept above MIN_GAIN: a
candidate that the picked ones span (a duplicate) comes last, by relevance.

`max_sum` picks in turn the candidate of the largest

    (1 - t) r_i - 2t / (n - 1) sum_{j in S} v_i . v_j

(max-sum diversification, greedily; a list of n then trades its mean relevance against its mean product of two vectors,
each of n (n - 1) / 2 pairs).
"""

from typing import Literal, get_args

import numpy as np
from numba import njit, prange

Method = Literal["mmr", "dpp", "max_sum"]
METHODS: tuple[Method, ...] = get_args(Method)
MMR, DPP = METHODS.index("mmr"), METHODS.index("dpp")  # numba reads no strings quickly
MIN_GAIN = 1e-6


def rerank(
    candidates: np.ndarray,
    scores: np.ndarray,
    vectors: np.ndarray,
    n: int,
    *,
    strength: float,
    method: Method,
    picks: int | None = None,
) -> np.ndarray:
    """Pick n candidates for each user, for relevance and variety.

    Args:
        candidates: int32 (block, N), rows of `vectors`, best first, padded with -1 at the end.
        scores: float32 (block, N), finite where there is a candidate.
        vectors: float32 (items, K), rows of length 1 or 0 (`models.reranking.vectors`).
        n: length of the lists.
        strength: t, from 0 (the order of the scores) to 1 (variety alone).
        picks: how many to pick, n by default; more put candidates for a list of n in order.

    Returns:
        int64 (block, picks): positions among the user's candidates, in the order of the picks; -1 where there are no
        more.
    """
    picked = np.full((len(candidates), n if picks is None else picks), -1, dtype=np.int64)
    _rerank_rows(
        np.ascontiguousarray(candidates, dtype=np.int32),
        np.ascontiguousarray(scores, dtype=np.float32),
        np.ascontiguousarray(vectors, dtype=np.float32),
        float(strength),
        METHODS.index(method),
        n,
        picked,
    )
    return picked


@njit(cache=True, parallel=True, nogil=True)
def _rerank_rows(candidates, scores, vectors, strength, method, n, picked):
    for user in prange(len(candidates)):
        count = 0
        while count < candidates.shape[1] and candidates[user, count] >= 0:
            count += 1
        relevance = scale_relevance(scores[user, :count])
        columns = candidates[user, :count]
        if method == MMR:
            _pick_marginal(columns, relevance, vectors, strength, picked[user])
        elif method == DPP:
            _pick_determinantal(columns, relevance, vectors, strength, picked[user])
        else:
            _pick_max_sum(columns, relevance, vectors, strength, n, picked[user])


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
    """(1 + v_i . v_j) / 2 of two items, summed in the order of the factors; 1 of an item with itself."""
    if one == other:
        return 1.0
    product = 0.0
    for factor in range(vectors.shape[1]):
        product += np.float64(vectors[one, factor]) * np.float64(vectors[other, factor])
    return (1.0 + product) / 2.0


@njit(cache=True, nogil=True)
def _pick_marginal(columns, relevance, vectors, strength, picked):
    count = len(columns)
    closest, is_left = np.zeros(count), np.ones(count, dtype=np.bool_)
    for rank in range(min(len(picked), count)):
        best, best_value = -1, -np.inf
        for place in range(count):
            value = (1.0 - strength) * relevance[place] - strength * closest[place]
            if is_left[place] and value > best_value:
                best, best_value = place, value
        picked[rank], is_left[best] = best, False
        for place in range(count):
            if is_left[place]:
                closest[place] = max(closest[place], similarity(vectors, columns[best], columns[place]))


@njit(cache=True, nogil=True, fastmath={"contract"})
def _pick_determinantal(columns, relevance, vectors, strength, picked):
    count, length = len(columns), min(len(picked), len(columns))
    gains, is_left = np.ones(count), np.ones(count, dtype=np.bool_)  # d_i^2
    factor = np.zeros((count, length))  # c_i
    for rank in range(length):
        best, best_value = -1, -np.inf
        for place in range(count):
            value = (1.0 - strength) * relevance[place] + strength * np.log(max(gains[place], MIN_GAIN))
            if is_left[place] and value > best_value:
                best, best_value = place, value
        picked[rank], is_left[best] = best, False
        if gains[best] <= MIN_GAIN:
            continue  # it adds no direction
        root = np.sqrt(gains[best])
        for place in range(count):
            if is_left[place]:
                product = 0.0
                for row in range(rank):
                    product += factor[best, row] * factor[place, row]
                step = (similarity(vectors, columns[best], columns[place]) - product) / root
                factor[place, rank] = step
                gains[place] -= step * step


@njit(cache=True, nogil=True)
def _pick_max_sum(columns, relevance, vectors, strength, n, picked):
    count, weight = len(columns), 2.0 * strength / max(n - 1, 1)
    sums, is_left = np.zeros(count), np.ones(count, dtype=np.bool_)
    for rank in range(min(len(picked), count)):
        best, best_value = -1, -np.inf
        for place in range(count):
            value = (1.0 - strength) * relevance[place] - weight * sums[place]
            if is_left[place] and value > best_value:
                best, best_value = place, value
        picked[rank], is_left[best] = best, False
        for place in range(count):
            if is_left[place]:
                sums[place] += 2.0 * similarity(vectors, columns[best], columns[place]) - 1.0
