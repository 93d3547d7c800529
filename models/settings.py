"""The base of model settings: frozen, with rules that derive defaults from the data, and with search spaces."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, model_validator
from scipy.sparse import csr_matrix

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class NumericRange:
    """The numbers from `low` to `high`, both included; only whole numbers if both ends are whole.

    Attributes:
        log: search the logarithm of the setting, for settings whose order of magnitude matters.
    """

    low: float
    high: float
    log: bool = False
    manual_only: bool = False

    def __post_init__(self) -> None:
        if not self.low < self.high or (self.log and self.low <= 0):
            raise ValueError(
                f"a span from {self.low} to {self.high}: low must be below high" + (", and above 0" if self.log else "")
            )


@dataclass(frozen=True)
class RelativeRange:
    """Multiples of the value that a setting's rule derives from the data (`ModelSettings.resolve`), on a log scale.

    Attributes:
        most: the smallest multiple is 1 / most.
        largest: the largest multiple, `most` by default; smaller for settings that make fits slower.
    """

    most: float
    manual_only: bool = False
    largest: float | None = None

    @property
    def to_numeric_range(self) -> NumericRange:
        """The range of the multiples."""
        return NumericRange(1 / self.most, self.largest or self.most, log=True)


@dataclass(frozen=True)
class Choice:
    """One of a few values."""

    values: tuple[bool | int | float | str, ...]
    manual_only: bool = False


ParameterRange = NumericRange | RelativeRange | Choice
SearchSpace = dict[str, ParameterRange]


class Settings(BaseModel):
    """Settings of a stage or model. They are frozen, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def from_saved(cls, values: Mapping[str, Any]) -> Self:
        """Build settings that an earlier version may have saved, without those that are gone, or whose values are."""
        try:
            return cls.model_validate(values, context={"saved": True})
        except ValidationError:
            return cls.model_validate(select_allowed(cls, values), context={"saved": True})

    @model_validator(mode="before")
    @classmethod
    def _keep_known(cls, given: Any, info: ValidationInfo) -> Any:
        if not (info.context or {}).get("saved"):
            return given
        return {name: value for name, value in given.items() if name in cls.model_fields}


def select_allowed(kind: type[BaseModel], saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that an earlier version saved, without those that are gone, or whose values are."""
    known = {name: value for name, value in saved.items() if name in kind.model_fields}
    try:
        kind.model_validate(known)
    except ValidationError as error:
        for name in {part["loc"][0] for part in error.errors() if part["loc"]}:
            logger.warning("%s: the saved value of %s is allowed no more; its default counts", kind.__name__, name)
            del known[str(name)]
    return known


class ModelSettings(Settings):
    """Settings of one model.

    Attributes:
        search_space: the range that tuning searches, by setting; other settings keep their values. The rule of a
            `RelativeRange` may depend on the settings before it.
        recency_search_space: further ranges if histories keep their order.
        explicit_search_space: further ranges if explicit negatives are kept.
        initial_trials: settings that worked well on other data sets, tried first by the automatic search: values by
            setting, multiples for a `RelativeRange`.
    """

    search_space: ClassVar[SearchSpace] = {}
    recency_search_space: ClassVar[SearchSpace] = {}
    explicit_search_space: ClassVar[SearchSpace] = {}
    initial_trials: ClassVar[Sequence[Mapping[str, Any]]] = ()

    @property
    def reads_order(self) -> bool:
        """Whether scores depend on the order in which a user came to like the items of a history."""
        return False

    @property
    def reads_times(self) -> bool:
        """Whether the fit and scores depend on the ages of the events of a history."""
        return False

    @property
    def reads_explicit_negatives(self) -> bool:
        """Whether a fit uses explicit negatives (`FitOptions.explicit_negatives`)."""
        return False

    def resolve(self, interactions: csr_matrix) -> Self:
        """Return the effective settings of a fit on this matrix, in which rules replace those that are None."""
        return self

    def with_trial_values(self, values: Mapping[str, Any], interactions: csr_matrix) -> Self:
        """Replace settings by values of the search space, for a fit on this matrix.

        Args:
            values: by setting; for a `RelativeRange` the multiple of the value that the rule derives from the matrix
                and from the settings before it in the search space. Counts are rounded, to at least one.

        Raises:
            ValueError: the settings are inconsistent.
        """
        multiples = [name for name, range_ in self.search_space.items() if isinstance(range_, RelativeRange)]
        settings = self.model_copy(update={**values, **{name: None for name in multiples if name in values}})
        for name in multiples:
            if name in values and (by_rule := getattr(settings.resolve(interactions), name)) is not None:
                value = values[name] * by_rule
                settings = settings.model_copy(
                    update={name: max(1, round(value)) if isinstance(by_rule, int) else value}
                )
        return type(self)(**settings.model_dump())


class RecencySettings(ModelSettings):
    """Settings of a model that weighs the entries of a history by recency when scoring; the fit does not depend on
    it.
    """

    exponents: ClassVar = (0.0, 0.2, 0.4, 0.7, 1.0)
    recency_search_space: ClassVar[SearchSpace] = {"recency_exponent": Choice(exponents)}

    recency_exponent: float = Field(
        0.0,
        ge=0,
        le=4,
        description="p: an item of the history after which the user came to like n others weighs (1 + n)^-p in the "
        "scores; 0 weighs all alike. Above 0, a run keeps the order of likes with its matrices.",
    )

    @property
    def reads_order(self) -> bool:
        """Whether scores depend on the order in which a user came to like the items of a history."""
        return self.recency_exponent > 0


SHORT, LONG = 12.0, 35.0  # likes of a mean user
FEW, MANY = 300.0, 3000.0  # items


def interpolate_by_history(likes: float, short: float, long: float) -> float:
    """Return a setting for logs with so many likes of a mean user.

    Args:
        short, long: the setting where these are SHORT or fewer, and LONG or more; between, its logarithm is linear in
            that of the likes.
    """
    return _interpolate(likes, (SHORT, LONG), short, long)


def interpolate_by_items(items: int, few: float, many: float) -> float:
    """Return a setting for logs with so many items; `few` holds up to FEW of them, `many` from MANY on."""
    return _interpolate(items, (FEW, MANY), few, many)


def _interpolate(at: float, bounds: tuple[float, float], low: float, high: float) -> float:
    share = float(np.interp(np.log(at), np.log(bounds), [0, 1]))
    return low ** (1 - share) * high**share
