"""The base of models that combine other models: settings that read what a component reads, and their arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from typing_extensions import TypeVar

from oneclass.models.base import Model
from oneclass.models.settings import ModelSettings


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

    def _arrays(self) -> dict[str, np.ndarray]:
        return {
            f"{number}.{name}": array
            for number, model in enumerate(self.components)
            for name, array in {"item_degrees": model.item_degrees, **model._arrays()}.items()
        }

    def _restore_components(self, arrays: dict[str, np.ndarray], resolved: Sequence[ModelSettings]) -> None:
        """Restore the components from their arrays and the settings that their fits resolved."""
        self.components = []
        for number, (kind, settings) in enumerate(zip(self.params.find_components(), resolved, strict=True)):
            own = {name.partition(".")[2]: array for name, array in arrays.items() if name.startswith(f"{number}.")}
            model = kind(settings, seed=self.seed, threads=self.threads)
            model.item_degrees, model.item_features = own.pop("item_degrees"), self.item_features
            model._restore(own)
            model._cache = {}
            self.components.append(model)
