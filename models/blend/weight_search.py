"""The weights of a blend, by coordinate ascent on validation users, with cross-validation over these users.

The lists of some models are given for the same users, on the common scale. The best model begins with the weight 1 and
the others with 0; then one weight after another goes to the value of GRID that is best for the mean nDCG, if that is
better by SURELY of the difference's standard errors over users, until none moves. Many weightings are as good by that. So
a second ascent goes by the mean rank S to some whose nDCG is not surely lower: nDCG sees the head of a list alone, and a
model whose rare items are in no order would spoil the rest of it. At most MOST_MEMBERS weights are above 0.

What the blend is worth is told by FOLDS-fold cross-validation: each user's nDCG is by the weights that the users of the
other folds chose.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numba import njit, prange
from scipy.sparse import csr_matrix

from oneclass.models.evaluation.ranking import count_below_and_equal
from oneclass.models.numerics.top_k import top_items

CANDIDATES_PER_MODEL = 200  # of each model's list; items that no model has there are left out of nDCG
NDCG_CUTOFF = 100  # of nDCG
MAX_MEAN_RANK_ITEMS = 256  # items at most, evenly spread over all, that S counts
WEIGHT_GRID = (0.0, 0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
FOLDS, ROUNDS = 5, 4
MIN_GAIN_IN_SE = 0.5
MAX_COMPONENTS = 5

Weights = tuple[float, ...]
Metric = Callable[[Weights], np.ndarray]  # float64 (users,)


@dataclass(frozen=True)
class WeightSearchResult:
    """What was found.

    Attributes:
        weights: of each model, the best one's 1 before the ascent; 0 for a model that adds nothing.
        value: float64 (users,), nDCG by these weights.
        cross_validated: float64 (users,), nDCG by the weights that other users chose.
        alone: float64 (models, users), nDCG of each model by itself.
        tried: how many weightings were judged.
    """

    weights: Weights
    value: np.ndarray
    cross_validated: np.ndarray
    alone: np.ndarray
    tried: int

    @property
    def best(self) -> int:
        """The model with the highest mean by itself."""
        return int(self.alone.mean(axis=1).argmax())


@dataclass
class Candidates:
    """What the weights are judged by: for each user the items that some model has among its LONG best, and some of all.

    Attributes:
        scores: float32 (models, users, places), each model's score of each of the items; -inf where a user has fewer.
        gains: bool (users, places), whether the item is a target.
        spread: float32 (models, users, SPREAD at most), scores of items that are spread over all, -inf where the item is in
            the history.
        of_targets: float32 (models, targets), scores of each user's targets.
        bounds: int64 (users + 1,), where the targets of a user begin.
        cut: of nDCG.
    """

    scores: np.ndarray
    gains: np.ndarray
    spread: np.ndarray
    of_targets: np.ndarray
    bounds: np.ndarray
    cut: int = NDCG_CUTOFF
    _ndcg: dict[Weights, np.ndarray] = field(default_factory=dict)
    _mean_rank: dict[Weights, np.ndarray] = field(default_factory=dict)

    @classmethod
    def from_blocks(
        cls, blocks: Iterable[tuple[np.ndarray, csr_matrix, csr_matrix]], cut: int = NDCG_CUTOFF
    ) -> "Candidates":
        """From blocks of users: (models, block, items) scores on the common scale, histories and targets."""
        parts = [cls._of_block(*block) for block in blocks]
        places = max(part.gains.shape[1] for part in parts)
        return cls(
            scores=np.concatenate([_pad_last_axis(part.scores, places, -np.inf) for part in parts], axis=1),
            gains=np.concatenate([_pad_last_axis(part.gains, places, False) for part in parts]),
            spread=np.concatenate([part.spread for part in parts], axis=1),
            of_targets=np.concatenate([part.of_targets for part in parts], axis=1),
            bounds=np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part.bounds) for part in parts]))]),
            cut=cut,
        )

    @classmethod
    def _of_block(cls, scores: np.ndarray, histories: csr_matrix, targets: csr_matrix) -> "Candidates":
        lists = [top_items(one, histories.indptr, histories.indices, CANDIDATES_PER_MODEL)[0] for one in scores]
        found = [np.unique(row[row >= 0]) for row in np.concatenate(lists, axis=1)]
        places = max(map(len, found), default=0)
        kept = np.full((len(scores), len(found), places), -np.inf, dtype=np.float32)
        gains = np.zeros((len(found), places), dtype=bool)
        for user, items in enumerate(found):
            kept[:, user, : len(items)] = scores[:, user, items]
            own = targets.indices[targets.indptr[user] : targets.indptr[user + 1]]
            gains[user, : len(items)] = np.isin(items, own)
        items, count = scores.shape[2], min(scores.shape[2], MAX_MEAN_RANK_ITEMS)
        some = np.arange(count) * items // count
        spread = scores[:, :, some]
        spread[:, histories[:, some].toarray() > 0] = -np.inf
        rows = np.repeat(np.arange(len(found)), np.diff(targets.indptr))
        return cls(kept, gains, spread, scores[:, rows, targets.indices], targets.indptr.astype(np.int64))

    def ndcg(self, weights: Weights) -> np.ndarray:
        """float64 (users,): nDCG of the weighted sums; of equal sums the lower item comes first."""
        if weights not in self._ndcg:
            self._ndcg[weights] = found = np.empty(len(self.gains))
            discounts = 1 / np.log2(np.arange(self.cut) + 2)
            _find_ndcg(np.array(weights, dtype=np.float32), self.scores, self.gains, self.bounds, discounts, found)
        return self._ndcg[weights]

    def mean_rank(self, weights: Weights) -> np.ndarray:
        """float64 (users,): S of the weighted sums, among the items that are spread over all."""
        if weights not in self._mean_rank:
            self._mean_rank[weights] = found = np.empty(len(self.gains))
            of_models = np.array(weights, dtype=np.float32)
            _find_mean_rank(of_models, self.spread, self.of_targets, self.bounds, found)
        return self._mean_rank[weights]


def search_weights(candidates: Candidates, seed: int) -> WeightSearchResult:
    """The weights of each model, and what they are worth.

    Args:
        candidates: of validation users, each with a target.
        seed: of the folds.
    """
    models, users = candidates.scores.shape[:2]
    unit = [tuple(float(k == at) for k in range(models)) for at in range(models)]
    fold = np.random.default_rng(seed).permutation(users) % FOLDS
    crossed = np.empty(users)
    for left_out in range(FOLDS):
        if (inside := fold == left_out).any() and not inside.all():
            crossed[inside] = candidates.ndcg(_best_ascent(candidates, ~inside, unit))[inside]
    weights = _best_ascent(candidates, np.ones(users, dtype=bool), unit)
    alone = np.array([candidates.ndcg(one) for one in unit])
    return WeightSearchResult(weights, candidates.ndcg(weights), crossed, alone, len(candidates._ndcg))


def _best_ascent(candidates: Candidates, users: np.ndarray, unit: list[Weights]) -> Weights:
    """The weights at which the two ascents over some of the users end."""

    def surely_more(metric: Metric, to: Weights, of: Weights) -> bool:
        """Whether the mean is higher, by SURELY standard errors of the difference."""
        differences = (metric(to) - metric(of))[users]
        return differences.mean() > MIN_GAIN_IN_SE * differences.std() / np.sqrt(len(differences))

    def best(metric: Metric, now: Weights, others: list[Weights]) -> Weights:
        found = max(others, key=lambda one: metric(one)[users].mean(), default=now)
        return found if surely_more(metric, found, now) else now

    def by_mean_rank(now: Weights, others: list[Weights]) -> Weights:
        blends = [one for one in others if np.count_nonzero(one) > 1]
        as_good = [one for one in blends if not surely_more(candidates.ndcg, head, one)]
        return best(candidates.mean_rank, now, as_good)

    alone = max(unit, key=lambda one: candidates.ndcg(one)[users].mean())
    head = _coordinate_ascent(alone, partial(best, candidates.ndcg))
    return _coordinate_ascent(head, by_mean_rank) if head != alone else head


def _coordinate_ascent(weights: Weights, step: Callable[[Weights, list[Weights]], Weights]) -> Weights:
    """Where it ends when one weight after another may go to any value of GRID."""
    for _ in range(ROUNDS):
        before = weights
        for at in range(len(weights)):
            others = [weights[:at] + (one,) + weights[at + 1 :] for one in WEIGHT_GRID]
            weights = step(weights, [one for one in others if 0 < np.count_nonzero(one) <= MAX_COMPONENTS])
        if weights == before:
            break
    return weights


@njit(cache=True, nogil=True, parallel=True)
def _find_ndcg(weights, scores, gains, bounds, discounts, found):
    """By counting what comes before each target, for few of the items are targets."""
    cut = len(discounts)
    for user in prange(len(gains)):
        total, gain, ideal = _weighted_sum(weights, scores[:, user]), 0.0, 0.0
        for place in range(len(total)):
            if gains[user, place]:
                below, equal = count_below_and_equal(total, total[place])
                before = len(total) - below - equal + count_below_and_equal(total[:place], total[place])[1]
                gain += discounts[before] if before < cut else 0.0
        for place in range(min(cut, bounds[user + 1] - bounds[user])):
            ideal += discounts[place]
        found[user] = gain / ideal


@njit(cache=True, nogil=True, parallel=True)
def _find_mean_rank(weights, spread, of_targets, bounds, found):
    for user in prange(len(found)):
        total, first, end = _weighted_sum(weights, spread[:, user]), bounds[user], bounds[user + 1]
        own, left_out, below = _weighted_sum(weights, of_targets[:, first:end]), 0, 0
        for item in range(len(total)):
            left_out += total[item] == -np.inf
        for target in range(len(own)):
            below += count_below_and_equal(total, own[target])[0] - left_out
        found[user] = below / max(1, (len(total) - left_out) * len(own))


@njit(cache=True, nogil=True)
def _weighted_sum(weights, scores):
    """The weighted sum of (models, places) scores, models of weight 0 left out; -inf stays."""
    total = np.zeros(scores.shape[1], dtype=np.float32)
    for model in range(len(weights)):
        if weights[model]:
            row, weight = scores[model], weights[model]
            for place in range(len(total)):
                total[place] += weight * row[place]
    return total


def _pad_last_axis(array: np.ndarray, places: int, filling: float) -> np.ndarray:
    """The array with its last axis filled up to so many places."""
    missing = [(0, 0)] * (array.ndim - 1) + [(0, places - array.shape[-1])]
    return np.pad(array, missing, constant_values=filling)
