"""The weights of a blend, by coordinate ascent on validation users, with cross-validation over these users.

The lists of some models are given for the same users, on the common scale. The best model begins with the weight 1 and
the others with 0; then one weight after another goes to the value of GRID that is best for the mean nDCG@100, if that is
better by SURELY of the difference's standard errors over users, until none moves. What the blend is worth is told by FOLDS-fold cross-validation: each user's nDCG is by the weights that the users
of the other folds chose.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import csr_matrix

from models.numerics.top_items import top_items

LONG = 200  # of each model's list; items that no model has there are left out
CUT = 100  # of nDCG
GRID = (0.0, 0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
FOLDS, ROUNDS = 5, 4
SURELY = 0.5


@dataclass(frozen=True)
class Weighed:
    """What was found.

    Attributes:
        weights: of each model, the best one's 1 before the ascent; 0 for a model that adds nothing.
        value: float64 (users,), nDCG@100 by these weights.
        cross_validated: float64 (users,), nDCG@100 by the weights that other users chose.
        alone: float64 (models, users), nDCG@100 of each model by itself.
        tried: how many weightings were judged.
    """

    weights: tuple[float, ...]
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
    """The items that some model has among its LONG best for a user, with every model's score of each of them.

    Attributes:
        scores: float32 (models, users, places), -inf where a user has fewer candidates.
        gains: bool (users, places), whether the item is a target.
        ideal: float64 (users,), the discounted gain of a list that begins with the targets.
    """

    scores: np.ndarray
    gains: np.ndarray
    ideal: np.ndarray
    _known: dict[tuple[float, ...], np.ndarray] = field(default_factory=dict)

    @classmethod
    def of_blocks(cls, blocks: Iterable[tuple[np.ndarray, csr_matrix, csr_matrix]]) -> "Candidates":
        """From blocks of users: (models, block, items) scores on the common scale, histories and targets."""
        parts = [cls._of_block(*block) for block in blocks]
        places = max(part.gains.shape[1] for part in parts)
        scores = np.concatenate([_widened(part.scores, places, -np.inf) for part in parts], axis=1)
        gains = np.concatenate([_widened(part.gains, places, False) for part in parts])
        return cls(scores, gains, np.concatenate([part.ideal for part in parts]))

    @classmethod
    def _of_block(cls, scores: np.ndarray, histories: csr_matrix, targets: csr_matrix) -> "Candidates":
        lists = [top_items(one, histories.indptr, histories.indices, LONG)[0] for one in scores]
        found = [np.unique(row[row >= 0]) for row in np.concatenate(lists, axis=1)]
        places = max(map(len, found), default=0)
        kept = np.full((len(scores), len(found), places), -np.inf, dtype=np.float32)
        gains = np.zeros((len(found), places), dtype=bool)
        for user, items in enumerate(found):
            kept[:, user, : len(items)] = scores[:, user, items]
            own = targets.indices[targets.indptr[user] : targets.indptr[user + 1]]
            gains[user, : len(items)] = np.isin(items, own)
        ideal = np.concatenate([[0.0], np.cumsum(_discounts(CUT))])[np.minimum(np.diff(targets.indptr), CUT)]
        return cls(kept, gains, ideal)

    def ndcg(self, weights: tuple[float, ...]) -> np.ndarray:
        """float64 (users,): nDCG@100 of the weighted sums; of equal sums the lower item comes first."""
        if weights not in self._known:
            there = np.isfinite(self.scores[0])
            total = np.zeros(there.shape, dtype=np.float32)
            for weight, of_model in zip(weights, self.scores, strict=True):
                if weight:
                    total += np.float32(weight) * np.where(there, of_model, 0)
            order = np.argsort(np.where(there, -total, np.inf), axis=1, kind="stable")[:, :CUT]
            gains = np.take_along_axis(self.gains, order, axis=1)
            self._known[weights] = gains @ _discounts(gains.shape[1]) / self.ideal
        return self._known[weights]


def weigh(candidates: Candidates, seed: int) -> Weighed:
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
            crossed[inside] = candidates.ndcg(_ascended(candidates, ~inside, unit))[inside]
    weights = _ascended(candidates, np.ones(users, dtype=bool), unit)
    alone = np.array([candidates.ndcg(one) for one in unit])
    return Weighed(weights, candidates.ndcg(weights), crossed, alone, len(candidates._known))


def _ascended(candidates: Candidates, users: np.ndarray, unit: list[tuple[float, ...]]) -> tuple[float, ...]:
    """The weights at which coordinate ascent over some of the users ends."""

    def value(weights: tuple[float, ...]) -> float:
        return float(candidates.ndcg(weights)[users].mean())

    weights = max(unit, key=value)
    for _ in range(ROUNDS):
        before = weights
        for at in range(len(unit)):
            others = [weights[:at] + (one,) + weights[at + 1 :] for one in GRID]
            best = max((one for one in others if any(one)), key=value)
            gained = (candidates.ndcg(best) - candidates.ndcg(weights))[users]
            if gained.mean() > SURELY * gained.std() / np.sqrt(len(gained)):
                weights = best
        if weights == before:
            break
    return weights


def _discounts(count: int) -> np.ndarray:
    """Of the places of a list, from the first."""
    return 1 / np.log2(np.arange(count) + 2)


def _widened(array: np.ndarray, places: int, filling: float) -> np.ndarray:
    """The array with its last axis filled up to so many places."""
    missing = [(0, 0)] * (array.ndim - 1) + [(0, places - array.shape[-1])]
    return np.pad(array, missing, constant_values=filling)
