"""A weighted sum of the scores of other models: s_ui = sum_k w_k s'_kui, where s'_k are normalised scores
(`score_normalization`).

The components are fitted on the same edges, each with its own settings; the weights are settings too, and are found on
validation users (`weight_search`). A stored fit of a component is used if there is one (`FitOptions.load_component`).
"""

from time import perf_counter
from typing import Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, model_validator
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.blend.score_normalization import find_scale, rescale_scores
from oneclass.models.components import Combination, CombinationSettings
from oneclass.models.fit_options import Epoch, FitOptions
from oneclass.models.settings import ModelSettings, find_component


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
        return [kind.Settings.from_saved(component.settings) for kind, component in pairs]


class Blend(Combination[BlendSettings]):
    """Weighted sum of the normalised scores of other models.

    The normalisation is ours (`models.blend.score_normalization`); no paper.

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

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        self.components, settings = [], self.params.parse_components()
        for number, (kind, own) in enumerate(zip(self.params.find_components(), settings, strict=True), 1):
            started = perf_counter()
            self.components.append(self._fit_component(kind, own, interactions, options))
            options.on_epoch(Epoch(number, len(settings), perf_counter() - started))

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
