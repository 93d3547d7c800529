"""A weighted sum of the scores of other models: s_ui = sum_k w_k s'_kui, where s'_k are normalised scores
(`normalize_scores`).

Of a user's candidates, the items that are not in the history, the hundredth best score becomes 0 and the mean of the
ten best 1: s -> (s - s[100th]) / (mean of s[1st] to s[10th] - s[100th]). So a weight says how much a model's opinion of
the head of the list counts, whatever its scores are: log odds, sums of weights or products of factors. Items of the
history are scored on the same scale.

The components are fitted on the same edges, each with its own settings; the weights are settings too, and are found on
validation users (`weight_search`). A stored fit of a component is used if there is one (`FitOptions.load_component`).
"""

from typing import Any, Self

import numpy as np
from numba import njit, prange
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, model_validator
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.components import Combination, CombinationSettings, find_component
from oneclass.models.model_files import upgrade_settings
from oneclass.models.numerics.top_k import as_index_arrays, top_n_threshold
from oneclass.models.settings import ModelSettings

SCALE_END_RANK, SCALE_HEAD_RANKS = 100, 10


class Component(BaseModel):
    """One model of a blend."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field(description="A model's name.")
    score: str = Field(default="score", description="One of its scores.")
    weight: float = Field(
        default=1.0, gt=0, allow_inf_nan=False, description="What its scores count, on the common scale."
    )
    settings: dict[str, Any] = Field(
        default={}, description="Its settings; those that are not named have their defaults."
    )


class BlendSettings(CombinationSettings):
    """By default an item-item model and a factor model of equal weights; a run searches components and weights."""

    components: tuple[Component, ...] = Field(
        default=(Component(model="mrf_dense"), Component(model="wmf")),
        min_length=1,
        description="The models whose scores are added. A run takes those of its own models that are best together on "
        "validation users, unless they are given.",
    )

    @model_validator(mode="after")
    def _check_components(self, info: ValidationInfo) -> Self:
        for kind, component in zip(self.find_components(), self.components, strict=True):
            kind.Settings.model_validate(component.settings, context=info.context)
        return self

    def find_components(self) -> "list[type[Model]]":
        """Return the components' estimators."""
        return [find_component("components", of.model, of.score, Blend.name) for of in self.components]

    def parse_components(self) -> list[ModelSettings]:
        """Return the components' settings."""
        pairs = zip(self.find_components(), self.components, strict=True)
        return [upgrade_settings(kind.Settings, component.settings) for kind, component in pairs]


class Blend(Combination[BlendSettings]):
    """Weighted sum of the normalised scores of other models.

    The normalisation is ours; no paper.

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_matrix
        >>> from oneclass import Blend
        >>> taste = np.kron(np.eye(2), np.ones((10, 5)))  # two groups of ten users, each of which likes five items
        >>> components = [{"model": "mrf_dense", "weight": 2.0}, {"model": "wmf", "settings": {"factors": 4}}]
        >>> model = Blend(components=components).fit(csr_matrix(taste))
        >>> ids, scores = model.recommend(csr_matrix([[1, 1, 1, 1, 0, 0, 0, 0, 0, 0]]), n=1)
        >>> ids.tolist()
        [[4]]
    """

    name = "blend"
    Settings = BlendSettings

    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        total, spreads = np.zeros(histories.shape, dtype=np.float32), []
        for component, model in zip(self.params.components, self.components, strict=True):
            of_component = model.scores(histories, users=users, score=component.score)
            low, spread = find_scale(of_component, histories)
            total += np.float32(component.weight) * rescale_scores(of_component, low, spread)
            spreads.append(spread)
        self.compute_once("spreads", lambda: spreads, histories)
        return total

    @property
    def explains_cheaply(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]  (it is only read)
        """Whether every component does."""
        return all(model.explains_cheaply for model in self.components)

    def _contributions(self, history: csr_matrix, items: np.ndarray) -> np.ndarray | None:
        """Return what each item of the history adds to the scores of components with such sums; None if none has.

        On the common scale and weighted; the sum is these components' part of the score, up to a constant of the user.
        Such scores, and so their scales, are the same for a training user and for an unseen user with the same history.
        """
        components = list(zip(self.params.components, self.components, strict=True))
        parts = [
            model.contributions(history, items) if component.score == model.score_names[0] else None
            for component, model in components
        ]
        if all(part is None for part in parts):
            return None

        def spreads() -> list[np.ndarray | None]:
            return [
                None if part is None else find_scale(model.scores(history, score=component.score), history)[1]
                for (component, model), part in zip(components, parts, strict=True)
            ]

        of_components = zip(components, parts, self.compute_once("spreads", spreads, history), strict=True)
        weighted = (
            np.float32(component.weight / spread[0]) * part
            for (component, _), part, spread in of_components
            if part is not None
        )
        return sum(weighted, np.zeros((len(history.indices), len(items)), dtype=np.float32))


def normalize_scores(scores: np.ndarray, histories: csr_matrix) -> np.ndarray:
    """Normalise the scores of one model to the common scale, in place.

    Args:
        scores: float32 (block, items).
        histories: (block, items) CSR, each user's known likes.

    Returns:
        `scores`.
    """
    return rescale_scores(scores, *find_scale(scores, histories))


def rescale_scores(scores: np.ndarray, low: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Shift scores, float32 (block, items), by `low` and divide them by `spread`, in place."""
    scores -= low[:, None]
    scores /= spread[:, None]
    return scores


def find_scale(scores: np.ndarray, histories: csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """Find the zero and the unit of each user's scale, both float32 (block,).

    If a user has fewer than SCALE_END_RANK candidates, the last one replaces the hundredth; if all of the best are
    equal, the unit is 1.
    """
    low, spread = np.empty((2, len(scores)), dtype=np.float32)
    likes = as_index_arrays(histories.indptr, histories.indices)
    _find_scales(np.ascontiguousarray(scores, dtype=np.float32), *likes, low, spread)
    return low, spread


@njit(cache=True, nogil=True, parallel=True)
def _find_scales(scores, indptr, indices, low, spread):
    for user in prange(len(scores)):
        left = scores[user].copy()
        for item in indices[indptr[user] : indptr[user + 1]]:
            left[item] = -np.inf
        # Few more than the best hundred, and none that is -inf or NaN.
        best = np.sort(left[left > top_n_threshold(left, indices[:0], SCALE_END_RANK)])[::-1]
        count = min(SCALE_END_RANK, len(best))
        low[user], spread[user] = np.float32(0), np.float32(1)
        if count > 0:
            low[user], head = best[count - 1], 0.0
            for value in best[: min(SCALE_HEAD_RANKS, count)]:
                head += value
            above = np.float32(head / min(SCALE_HEAD_RANKS, count) - low[user])
            spread[user] = above if above > 0 else np.float32(1)
