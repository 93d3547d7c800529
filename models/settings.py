"""Settings of models, frozen and with search spaces, and the estimators that take them by keyword."""

import difflib
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self

from pydantic import BaseModel, ConfigDict, ValidationInfo, model_validator
from scipy.sparse import csr_matrix
from typing_extensions import TypeVar  # of Python 3.13, with a default


@dataclass(frozen=True)
class NumericRange:
    """The numbers from `low` to `high`, both included; only whole numbers if both ends are whole.

    Attributes:
        log: search the logarithm of the setting, for settings whose order of magnitude matters.
        manual_only: a run's own search leaves the setting alone; `flows.tune` searches it.
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
class Choice:
    """One of a few values."""

    values: tuple[bool | int | float | str, ...]
    manual_only: bool = False


ParameterRange = NumericRange | Choice
SearchSpace = dict[str, ParameterRange]


class Settings(BaseModel):
    """Settings of a stage or model. They are frozen; unknown keys and numbers that are not finite are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _keep_known(cls, given: Any, info: ValidationInfo) -> Any:
        if not (info.context or {}).get("saved"):
            return given
        return {name: value for name, value in given.items() if name in cls.model_fields}


class ModelSettings(Settings):
    """Settings of one model.

    Attributes:
        search_space: the range that tuning searches, by setting; other settings keep their values. The rule of a
            `RelativeRange` (`models.derived_settings`) may depend on the settings before it.
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

    def find_components(self) -> Sequence[Any]:
        """Return the classes of the models that this one combines."""
        return ()

    def resolve(self, interactions: csr_matrix) -> Self:
        """Return the effective settings of a fit on this matrix, in which rules replace those that are None."""
        return self


def name_after(model: type) -> str:
    """Return the name of a class in lower case, its words divided by underscores."""
    return re.sub(r"(?<!^)(?=[A-Z][a-z])", "_", model.__name__).lower()


SettingsT = TypeVar("SettingsT", bound=ModelSettings, default=Any)


class NotFittedError(ValueError, AttributeError):
    """A method needs what `fit` learns, and the model is not fitted. Both bases are those of scikit-learn's error."""


class Estimator(Generic[SettingsT]):
    """Parameters of a model, as in scikit-learn: its settings by keyword or as one object, the seed and the threads.

    Attributes:
        settings: the settings given to the constructor.
        params: the effective settings, in which those that `settings` leaves at None are derived from the data. `fit`
            and `load` set them; a model's methods read no others.
        seed: the seed of every random draw.
        threads: numba threads that `fit` and `scores` use; the result does not depend on their number.
    """

    name: ClassVar[str]  # by default that of the class
    Settings: ClassVar[Any] = ModelSettings  # or a subclass

    settings: SettingsT
    params: SettingsT

    def __init_subclass__(cls, **options: Any) -> None:
        """Name the class, if it has no name, and give it a signature with its parameters, for `help` and editors."""
        super().__init_subclass__(**options)
        if Estimator not in cls.__bases__ and not hasattr(cls, "name"):
            cls.name = name_after(cls)
        if "Settings" in vars(cls):
            given = inspect.Parameter("settings", inspect.Parameter.POSITIONAL_ONLY, default=None)
            kind = inspect.Parameter.KEYWORD_ONLY
            defaults = cls.default_params().items()
            parameters = [inspect.Parameter(name, kind, default=default) for name, default in defaults]
            cls.__signature__ = inspect.Signature([given, *parameters])

    @classmethod
    def default_params(cls) -> dict[str, Any]:
        """Return the default of each parameter by name."""
        fields = cls.Settings.model_fields.items()
        settings = {name: field.get_default(call_default_factory=True) for name, field in fields}
        return settings | {"seed": 0, "threads": 1}

    def __init__(
        self, settings: SettingsT | None = None, /, *, seed: int = 0, threads: int = 1, **parameters: Any
    ) -> None:
        """Take the parameters of a model that is not fitted yet.

        Args:
            settings: all settings in one object, instead of `parameters`.
            parameters: settings by name.

        Raises:
            TypeError: a parameter is unknown, both forms are given, or `settings` is not of this model.
            ValueError: a value is out of its range.
        """
        kind = type(self).__name__
        if settings is not None and parameters:
            raise TypeError(f"{kind}: give its settings as one object or by keyword, not both")
        if settings is not None and not isinstance(settings, self.Settings):
            raise TypeError(
                f"{kind}: its settings are a {type(settings).__name__}; give {self.Settings.__name__}, "
                f"or keywords such as {kind}(seed=1)"
            )
        known = list(self.default_params())
        for name in parameters:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                meant = f"; did you mean {close[0]!r}?" if close else "."
                raise TypeError(f"{kind} has no parameter {name!r}{meant} It has {', '.join(known)}")
        self.settings = self.params = self.Settings(**parameters) if settings is None else settings
        self.seed = seed
        self.threads = threads

    if not TYPE_CHECKING:  # a checker would take any name for an attribute

        def __getattr__(self, name: str) -> Any:
            """Raise for an attribute that is missing, which in a model without a fit is learned by the fit."""
            if name.startswith("__") or "item_degrees" in self.__dict__:
                return object.__getattribute__(self, name)  # raises the error of this name, or of a property's code
            kind = type(self).__name__
            raise NotFittedError(
                f"this {kind} is not fitted, and has no {name!r} yet: call fit(interactions), or {kind}.load(folder)"
            )

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all parameters by name: the settings as given, `seed` and `threads`; `deep` has no effect."""
        settings = {name: getattr(self.settings, name) for name in self.Settings.model_fields}
        return settings | {"seed": self.seed, "threads": self.threads}

    def set_params(self, **parameters: Any) -> Self:
        """Replace parameters and return the model; a change of any but `threads` discards its fit.

        Raises:
            TypeError: a parameter is unknown.
            ValueError: a value is out of its range.
        """
        before, changed = self.get_params(), self.clone(**parameters)
        if any(value != before[name] for name, value in changed.get_params().items() if name != "threads"):
            self.__dict__.clear()
            self.__dict__.update(changed.__dict__)
        self.threads = changed.threads
        return self

    def clone(self, **parameters: Any) -> Self:
        """Return a model with the same parameters, but for those given, and without the fit."""
        given = {name: getattr(self.settings, name) for name in self.settings.model_fields_set}
        return type(self)(**{**given, "seed": self.seed, "threads": self.threads, **parameters})

    def __repr__(self) -> str:
        """Return the call that makes the model, with the parameters that differ from their defaults."""
        defaults = self.default_params()
        changed = [f"{name}={value!r}" for name, value in self.get_params().items() if value != defaults[name]]
        return f"{type(self).__name__}({', '.join(changed)})"
