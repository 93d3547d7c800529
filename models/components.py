"""The base of models that combine other models: settings that read what a component reads, and their arrays."""

import json
from collections.abc import Sequence
from importlib import import_module
from time import perf_counter
from typing import Any, Self

import numpy as np
from pydantic import ValidationInfo, model_validator
from scipy.sparse import csr_matrix
from typing_extensions import TypeVar

from oneclass.models.base import Model
from oneclass.models.fit_options import Epoch, FitOptions
from oneclass.models.model_files import upgrade_settings
from oneclass.models.settings import ModelSettings


def find_component(setting: str, name: str, score: str | None, own: str) -> Any:
    """Return the class of a model that a combination of models names.

    Args:
        score: one of the model's scores; None for its first.
        own: the name of the combination, which is no component of itself.

    Raises:
        ValueError: the model is unknown, or does not have the score.
    """
    kinds = import_module("oneclass.models.registry").MODELS  # by name, as a family imports no other
    if name not in kinds or name == own:
        raise ValueError(f"{setting}: {name} is no model that {own} can be made of")
    if score is not None and score not in kinds[name].score_names:
        raise ValueError(f"{setting}: {name} has no score {score}; it has {', '.join(kinds[name].score_names)}")
    return kinds[name]


class CombinationSettings(ModelSettings):
    """Settings of a model that combines others."""

    @property
    def reads_order(self) -> bool:
        """Whether a component's scores depend on the order of a history."""
        return any(settings.reads_order for settings in self.parse_components())

    @property
    def reads_times(self) -> bool:
        """Whether a component depends on the ages of events."""
        return any(settings.reads_times for settings in self.parse_components())

    @property
    def reads_explicit_negatives(self) -> bool:
        """Whether the fit of a component uses explicit negatives."""
        return any(settings.reads_explicit_negatives for settings in self.parse_components())

    @model_validator(mode="after")
    def _check_components(self, info: ValidationInfo) -> Self:
        self.find_components()
        return self

    def parse_components(self) -> Sequence[ModelSettings]:
        """Return the components' settings."""
        return [kind.Settings() for kind in self.find_components()]


CombinationT = TypeVar("CombinationT", bound=CombinationSettings, default=Any)


class Combination(Model[CombinationT]):
    """A model that scores by fitted models.

    Attributes:
        components: the fitted models, in the order of `CombinationSettings.find_components`.
    """

    components: list[Any]

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        """Take each component's stored fit on the same edges, or else fit it."""
        self.components, kinds = [], self.params.find_components()
        for number, (kind, settings) in enumerate(zip(kinds, self.params.parse_components(), strict=True), 1):
            started = perf_counter()
            if (model := options.load_component(kind.name, settings)) is None:
                model = kind(settings, seed=self.seed, threads=self.threads)
                model.fit(interactions, options.for_component())
            self.components.append(model)
            options.on_epoch(Epoch(number, len(kinds), perf_counter() - started))

    def _arrays(self) -> dict[str, np.ndarray]:
        arrays = super()._arrays()
        for number, model in enumerate(self.components):
            resolved = np.frombuffer(model.params.model_dump_json().encode(), dtype=np.uint8)
            own = {"item_degrees": model.item_degrees, "resolved": resolved, **model._arrays()}
            arrays |= {f"{number}.{name}": array for name, array in own.items()}
        return arrays

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        self.components = []
        for number, kind in enumerate(self.params.find_components()):
            names = [name for name in arrays if name.startswith(f"{number}.")]
            own = {name.partition(".")[2]: arrays.pop(name) for name in names}
            settings = upgrade_settings(kind.Settings, json.loads(own.pop("resolved").tobytes()))
            model = kind(settings, seed=self.seed, threads=self.threads)
            model.item_degrees, model.item_features = own.pop("item_degrees"), self.item_features
            model._restore(own)
            model._cache = {}
            self.components.append(model)
        super()._restore(arrays)
