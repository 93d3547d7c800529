"""The weights of a blend, by coordinate ascent on validation users, with cross-validation over these users.

The normalised scores of several models for the same users are given. The best model starts with the weight 1 and the
others with 0; then one weight after another is set to the value of WEIGHT_GRID with the best mean nDCG, if the gain
exceeds MIN_GAIN_IN_SE standard errors of the difference over users, until none changes. Many weightings are equally
good by nDCG. So a second ascent follows the mean rank S among weightings whose nDCG is not significantly lower: nDCG
sees only the head of a list, and a model that ranks rare items at random would spoil the rest. At most MAX_COMPONENTS
weights are above 0.

The blend's value is estimated by cross-validation: each user's nDCG and S are those of weights chosen on other folds.
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
ROUNDS = 4
MIN_GAIN_IN_SE = 0.5
MAX_COMPONENTS = 5

Weights = tuple[float, ...]
Metric = Callable[[Weights], np.ndarray]  # float64 (users,)


@dataclass(frozen=True)
class WeightSearchResult:
    """The result of a weight search.

    Attributes:
        weights: weight of each model, 1 for the best one before the ascent; 0 for a model that adds nothing.
        of_others: for each fold, the weights chosen on the users of the other folds.
        value: float64 (users,), nDCG with `weights`.
        cross_validated: float64 (users,), nDCG with weights chosen on other users.
        alone: float64 (models, users), nDCG of each model by itself.
        cross_validated_mean_rank: float64 (users,), S with weights chosen on other users.
        mean_rank_alone: float64 (users,), S of the best model by itself.
        tried: number of weightings evaluated.
    """

    weights: Weights
    of_others: list[Weights]
    value: np.ndarray
    cross_validated: np.ndarray
    alone: np.ndarray
    cross_validated_mean_rank: np.ndarray
    mean_rank_alone: np.ndarray
    tried: int

    @property
    def best(self) -> int:
        """The model with the highest mean by itself."""
        return int(self.alone.mean(axis=1).argmax())


@dataclass
class Candidates:
    """The data that weights are evaluated on: each user's items in the head of any model's list, and a sample of all
    items.

    Attributes:
        scores: float32 (models, users, width), each model's scores of a user's items, padded with -inf.
        gains: bool (users, width), whether the item is a target.
        spread: float32 (models, users, items of the sample), scores of items spread over all, -inf for excluded items
            and beyond the items of a block.
        of_targets: float32 (models, targets), scores of each user's targets.
        bounds: int64 (users + 1,), where the targets of a user begin.
        cut: of nDCG.
        ndcg_cache: float64 (users,), nDCG of each weighting so far.
    """

    scores: np.ndarray
    gains: np.ndarray
    spread: np.ndarray
    of_targets: np.ndarray
    bounds: np.ndarray
    cut: int = NDCG_CUTOFF
    ndcg_cache: dict[Weights, np.ndarray] = field(default_factory=dict)
    _mean_rank: dict[Weights, np.ndarray] = field(default_factory=dict)

    @classmethod
    def from_blocks(
        cls, blocks: Iterable[tuple[np.ndarray, csr_matrix, csr_matrix]], cut: int = NDCG_CUTOFF
    ) -> "Candidates":
        """Collect candidates from blocks of users: (models, block, items) normalised scores, excluded items and
        targets, as in `models.evaluation.ranking.rank_targets`.
        """
        parts = [cls._of_block(*block) for block in blocks]
        width = max(part.gains.shape[1] for part in parts)
        sampled = max(part.spread.shape[2] for part in parts)  # blocks of another fold may have fewer items
        return cls(
            scores=np.concatenate([_pad_last_axis(part.scores, width, -np.inf) for part in parts], axis=1),
            gains=np.concatenate([_pad_last_axis(part.gains, width, False) for part in parts]),
            spread=np.concatenate([_pad_last_axis(part.spread, sampled, -np.inf) for part in parts], axis=1),
            of_targets=np.concatenate([part.of_targets for part in parts], axis=1),
            bounds=np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part.bounds) for part in parts]))]),
            cut=cut,
        )

    @classmethod
    def _of_block(cls, scores: np.ndarray, excluded: csr_matrix, targets: csr_matrix) -> "Candidates":
        lists = [top_items(of_model, excluded.indptr, excluded.indices, CANDIDATES_PER_MODEL)[0] for of_model in scores]
        candidates = [np.unique(row[row >= 0]) for row in np.concatenate(lists, axis=1)]
        width = max(map(len, candidates), default=0)
        head_scores = np.full((len(scores), len(candidates), width), -np.inf, dtype=np.float32)
        gains = np.zeros((len(candidates), width), dtype=bool)
        for user, items in enumerate(candidates):
            head_scores[:, user, : len(items)] = scores[:, user, items]
            own = targets.indices[targets.indptr[user] : targets.indptr[user + 1]]
            gains[user, : len(items)] = np.isin(items, own)
        items, count = scores.shape[2], min(scores.shape[2], MAX_MEAN_RANK_ITEMS)
        some = np.arange(count) * items // count
        spread = scores[:, :, some]
        spread[:, excluded[:, some].toarray() > 0] = -np.inf
        rows = np.repeat(np.arange(len(candidates)), np.diff(targets.indptr))
        return cls(head_scores, gains, spread, scores[:, rows, targets.indices], targets.indptr.astype(np.int64))

    def ndcg(self, weights: Weights) -> np.ndarray:
        """Return the nDCG of the weighted sums, float64 (users,); of equal sums the lower item comes first."""
        if weights not in self.ndcg_cache:
            self.ndcg_cache[weights] = ndcg = np.empty(len(self.gains))
            discounts = 1 / np.log2(np.arange(self.cut) + 2)
            _find_ndcg(np.array(weights, dtype=np.float32), self.scores, self.gains, self.bounds, discounts, ndcg)
        return self.ndcg_cache[weights]

    def mean_rank(self, weights: Weights) -> np.ndarray:
        """Return S of the weighted sums, float64 (users,), among the items of the sample."""
        if weights not in self._mean_rank:
            self._mean_rank[weights] = mean_rank = np.empty(len(self.gains))
            of_models = np.array(weights, dtype=np.float32)
            _find_mean_rank(of_models, self.spread, self.of_targets, self.bounds, mean_rank)
        return self._mean_rank[weights]


def search_weights(candidates: Candidates, folds: np.ndarray) -> WeightSearchResult:
    """Search the weights of each model, and estimate their value by cross-validation.

    Args:
        candidates: of validation users, each with a target.
        folds: int (users,), the fold of each user, counted from 0; two or more have users.
    """
    models, users = candidates.scores.shape[:2]
    unit = [tuple(float(k == model) for k in range(models)) for model in range(models)]
    cross_validated, cross_validated_mean_rank = np.empty(users), np.empty(users)
    of_others = [_best_ascent(candidates, folds != fold, unit) for fold in range(folds.max() + 1)]
    for fold, chosen in enumerate(of_others):
        inside = folds == fold
        cross_validated[inside] = candidates.ndcg(chosen)[inside]
        cross_validated_mean_rank[inside] = candidates.mean_rank(chosen)[inside]
    weights = _best_ascent(candidates, np.ones(users, dtype=bool), unit)
    alone = np.array([candidates.ndcg(single) for single in unit])
    return WeightSearchResult(
        weights,
        of_others,
        candidates.ndcg(weights),
        cross_validated,
        alone,
        cross_validated_mean_rank,
        candidates.mean_rank(unit[int(alone.mean(axis=1).argmax())]),
        len(candidates.ndcg_cache),
    )


def _best_ascent(candidates: Candidates, users: np.ndarray, unit: list[Weights]) -> Weights:
    """Run the two ascents on some of the users and return the final weights."""

    def is_better(metric: Metric, new: Weights, old: Weights) -> bool:
        """Whether the mean is higher by more than MIN_GAIN_IN_SE standard errors of the difference."""
        differences = (metric(new) - metric(old))[users]
        return differences.mean() > MIN_GAIN_IN_SE * differences.std() / np.sqrt(len(differences))

    def best(metric: Metric, current: Weights, others: list[Weights]) -> Weights:
        highest = max(others, key=lambda weights: metric(weights)[users].mean(), default=current)
        return highest if is_better(metric, highest, current) else current

    def by_mean_rank(current: Weights, others: list[Weights]) -> Weights:
        blends = [weights for weights in others if np.count_nonzero(weights) > 1]
        as_good = [weights for weights in blends if not is_better(candidates.ndcg, head, weights)]
        return best(candidates.mean_rank, current, as_good)

    alone = max(unit, key=lambda weights: candidates.ndcg(weights)[users].mean())
    head = _coordinate_ascent(alone, partial(best, candidates.ndcg))
    return _coordinate_ascent(head, by_mean_rank) if head != alone else head


def _coordinate_ascent(weights: Weights, step: Callable[[Weights, list[Weights]], Weights]) -> Weights:
    """Move one weight after another over WEIGHT_GRID until none changes; returns the final weights."""
    for _ in range(ROUNDS):
        before = weights
        for k in range(len(weights)):
            others = [weights[:k] + (value,) + weights[k + 1 :] for value in WEIGHT_GRID]
            weights = step(weights, [other for other in others if 0 < np.count_nonzero(other) <= MAX_COMPONENTS])
        if weights == before:
            break
    return weights


@njit(cache=True, nogil=True, parallel=True)
def _find_ndcg(weights, scores, gains, bounds, discounts, found):
    """Count the items before each target, which is cheap since few items are targets."""
    cut = len(discounts)
    for user in prange(len(gains)):
        total, gain, ideal = _weighted_sum(weights, scores, user), 0.0, 0.0
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
        total, left_out, below = _weighted_sum(weights, spread, user), 0, 0
        for item in range(len(total)):
            left_out += total[item] == -np.inf
        for target in range(bounds[user], bounds[user + 1]):
            own = np.float32(0)
            for model in range(len(weights)):
                own += weights[model] * of_targets[model, target] if weights[model] else np.float32(0)
            below += count_below_and_equal(total, own)[0] - left_out
        found[user] = below / max(1, (len(total) - left_out) * (bounds[user + 1] - bounds[user]))


@njit(cache=True, nogil=True)
def _weighted_sum(weights, scores, user):
    """Return the weighted sum of a user's scores, without models of weight 0; -inf stays."""
    total = np.zeros(scores.shape[2], dtype=np.float32)
    for model in range(len(weights)):
        if weights[model]:
            row, weight = scores[model, user], weights[model]
            for place in range(len(total)):
                total[place] += weight * row[place]
    return total


def _pad_last_axis(array: np.ndarray, width: int, filling: float) -> np.ndarray:
    """Pad the last axis of an array to `width`."""
    missing = [(0, 0)] * (array.ndim - 1) + [(0, width - array.shape[-1])]
    return np.pad(array, missing, constant_values=filling)
