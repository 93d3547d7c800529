"""What every estimator has beside its mathematics: parameters by keyword, as in scikit-learn, and a bar of progress."""

import contextlib
import difflib
import inspect
from collections.abc import Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, cast

from typing_extensions import TypeVar  # of Python 3.13, with a default

from oneclass.models.fit_options import Epoch, FitOptions
from oneclass.models.settings import ModelSettings

SettingsT = TypeVar("SettingsT", bound=ModelSettings, default=Any)
RUN_PARAMETERS = {"seed": 0, "threads": 1}  # beside the settings, with their defaults


class NotFittedError(ValueError, AttributeError):
    """A method needs what `fit` learns, and the model is not fitted. Both bases are those of scikit-learn's error."""


class Estimator(Generic[SettingsT]):
    """Parameters of a model: its settings by keyword, or as one `Settings` object; the seed and the threads.

    Attributes:
        settings: the settings given to the constructor.
        params: the effective settings, in which those that `settings` leaves at None are derived from the data. `fit`
            and `load` set them; a model's methods read no others.
        seed: the seed of every random draw.
        threads: numba threads that `fit` and `scores` use; the result does not depend on their number.
    """

    name: ClassVar[str]
    Settings: ClassVar[type[ModelSettings]] = ModelSettings

    settings: SettingsT
    params: SettingsT

    def __init_subclass__(cls, **options: Any) -> None:
        """Give the class a signature with its parameters, for `help` and editors."""
        super().__init_subclass__(**options)
        if "Settings" in vars(cls):
            defaults = {name: field.get_default(call_default_factory=True) for name, field in _fields(cls).items()}
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters = [
                inspect.Parameter(name, kind, default=default) for name, default in (defaults | RUN_PARAMETERS).items()
            ]
            given = inspect.Parameter("settings", inspect.Parameter.POSITIONAL_ONLY, default=None)
            cls.__signature__ = inspect.Signature([given, *parameters])

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
        if settings is not None and parameters:
            raise TypeError(f"{type(self).__name__}: give its settings as one object or by keyword, not both")
        if settings is not None and not isinstance(settings, self.Settings):
            raise TypeError(
                f"{type(self).__name__}: its settings are a {type(settings).__name__}; give {self.Settings.__name__}, "
                f"or keywords such as {type(self).__name__}(seed=1)"
            )
        self._check_names(parameters)
        # A ClassVar cannot name the type variable: each model's `Settings` is its `SettingsT`.
        self.settings = self.params = cast(SettingsT, settings if settings is not None else self.Settings(**parameters))
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
        """Return all parameters by name: the settings as given, `seed` and `threads`.

        Args:
            deep: has no effect; scikit-learn's tools pass it.
        """
        settings = {name: getattr(self.settings, name) for name in _fields(type(self))}
        return settings | {name: getattr(self, name) for name in RUN_PARAMETERS}

    def set_params(self, **parameters: Any) -> Self:
        """Replace parameters and return the model; a change of any but `threads` discards its fit.

        Raises:
            TypeError: a parameter is unknown.
            ValueError: a value is out of its range.
        """
        self._check_names(parameters)
        before = self.get_params()
        changed = self._with(parameters)
        if any(value != before[name] for name, value in changed.get_params().items() if name != "threads"):
            self.__dict__.clear()
            self.__dict__.update(changed.__dict__)
        self.threads = changed.threads
        return self

    def clone(self) -> Self:
        """Return a model with the same parameters and without the fit."""
        return self._with({})

    def _with(self, parameters: dict[str, Any]) -> Self:
        given = {name: getattr(self.settings, name) for name in self.settings.model_fields_set}
        return type(self)(**{**given, **{name: getattr(self, name) for name in RUN_PARAMETERS}, **parameters})

    def __repr__(self) -> str:
        """Return the call that makes the model, with the parameters that differ from their defaults."""
        defaults = {name: field.get_default(call_default_factory=True) for name, field in _fields(type(self)).items()}
        defaults |= RUN_PARAMETERS
        changed = [f"{name}={value!r}" for name, value in self.get_params().items() if value != defaults[name]]
        return f"{type(self).__name__}({', '.join(changed)})"

    def _check_names(self, parameters: dict[str, Any]) -> None:
        """Refuse parameters that the model does not have, with the closest of those that it has."""
        known = [*_fields(type(self)), *RUN_PARAMETERS]
        for name in parameters:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                meant = f"; did you mean {close[0]!r}?" if close else "."
                raise TypeError(f"{type(self).__name__} has no parameter {name!r}{meant} It has {', '.join(known)}")


def _fields(model: type[Estimator]) -> dict[str, Any]:
    return model.Settings.model_fields


@contextlib.contextmanager
def show_progress(label: str, options: FitOptions) -> Generator[FitOptions]:
    """Yield the options of a fit with a bar on the error stream, or in the notebook, that moves after every epoch."""
    from rich.console import Console  # a nightly run draws its own bar
    from rich.progress import Progress, TextColumn

    columns = (*Progress.get_default_columns(), TextColumn("{task.fields[figures]}", style="dim"))
    with Progress(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(label, total=None, figures="")

        def on_epoch(epoch: Epoch) -> None:
            figures = ", ".join(f"{name} {value:.6g}" for name, value in epoch.values.items())
            bars.update(task, completed=epoch.number, total=epoch.of, figures=figures)
            options.on_epoch(epoch)

        yield replace(options, on_epoch=on_epoch)
        done = max(1, bars.tasks[task].completed)  # a fit that has converged makes no further epochs
        bars.update(task, completed=done, total=done)
