"""The settings classes of the stages and models, and the validation of a section against them."""

import importlib.util
from collections.abc import Collection, Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from oneclass.models.base import Model
from oneclass.models.derived_settings import RecencySettings
from oneclass.models.model_files import select_allowed
from oneclass.models.registry import MODELS
from oneclass.models.settings import ModelSettings
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.demo import DemoSettings
from oneclass.tasks.errors import InputError, suggest_name
from oneclass.tasks.ingest.landing import IngestSettings
from oneclass.tasks.orchestration.notifications import NotifySettings
from oneclass.tasks.protocols import PROTOCOLS
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.stores.home import FileSettings

LATEST_PROTOCOLS = frozenset({"given", "next_events"})  # whose validation edges may be later than the histories


class TrainSettings(BaseModel, frozen=True, extra="forbid"):
    """How every model is trained."""

    tune: Literal["auto", "off", "always"] = Field(
        "auto",
        description="Search the settings of models before the fits: auto, of those that the data set's file has none "
        "for, once in 30 days; always, of all models in every run; off.",
    )
    warm_start: bool = Field(
        False,
        description="Begin at the fit of the latest run where a model can; results then depend on it, and not on the "
        "log, the settings and the seed alone.",
    )


class EvaluateSettings(BaseModel, frozen=True, extra="forbid"):
    """What the tables of an evaluation have beside every run's metrics."""

    metrics: tuple[str, ...] = Field(
        (),
        description="Further metrics of users: names at any k, such as precision@7, or functions of UserRanks as "
        "package.module:function.",
    )


STAGE_SETTINGS: dict[str, type[BaseModel]] = {
    "ingest": IngestSettings,
    "binarize": BinarizeSettings,
    "split": SplitSettings,
    "train": TrainSettings,
    "evaluate": EvaluateSettings,
    "demo": DemoSettings,
    "publish": PublishSettings,
    "files": FileSettings,
    "notify": NotifySettings,
}
REQUIRED_EXTRAS = {"neural": "torch"}  # the module that each optional extra installs


def validate_settings(name: str, section: Mapping[str, Any]) -> Any:
    """Validate a section such as `[mrf_dense]` into the settings of the stage or model `name`.

    Raises:
        InputError: naming the section or the dotted setting that is wrong, such as an infinite number.
    """
    kind = _settings_class(name)
    try:
        return kind.model_validate(section)
    except ValidationError as error:
        first = error.errors()[0]
        setting = ".".join([name, *map(str, first["loc"])])
        if first["type"] == "extra_forbidden":
            known = [f"{name}.{field}" for field in kind.model_fields]
            raise InputError(_unknown_name_error("setting", setting, known)) from error
        value = "" if kind.model_config.get("hide_input_in_errors") else f" = {first['input']!r}"
        raise InputError(f"setting {setting}{value}: {first['msg'].removeprefix('Value error, ')}.") from error


def restore_settings(name: str, stored: Mapping[str, Any]) -> Any:
    """Build the settings of the stage or model `name` from what a run stored, perhaps by an earlier version.

    Raises:
        InputError: no stage or model has this name, or the settings do not fit together.
    """
    return validate_settings(name, select_allowed(_settings_class(name), stored))


def _settings_class(name: str) -> type[BaseModel]:
    if name in STAGE_SETTINGS:
        return STAGE_SETTINGS[name]
    return _find_model(name, "setting", [*STAGE_SETTINGS, *MODELS]).Settings


def _find_model(name: str, kind: str, known: Collection[str]) -> type[Model]:
    """Find a model by its name or its location, `module:Class`."""
    try:
        if name in MODELS:
            return MODELS[name]
    except (ImportError, TypeError, ValueError) as error:
        raise InputError(f"model {name}: {error}. Write module:Class of an installed module.") from error
    raise InputError(_unknown_name_error(kind, name, known))


def check_model(name: str) -> None:
    """Raise `InputError` for a model that does not exist or needs an extra that is not installed."""
    extra = _find_model(name, "model", MODELS).extra
    if extra and not _has_extra(name):
        raise InputError(
            f"model {name}: needs {REQUIRED_EXTRAS[extra]}, which is not installed. It is in the extra {extra}: "
            f"python -m pip install -c constraints.txt -e '.[{extra}]'"
        )


def list_installed_models() -> list[str]:
    """List the models whose extra, if any, is installed."""
    return [name for name in MODELS if _has_extra(name)]


def _has_extra(name: str) -> bool:
    extra = MODELS[name].extra
    return extra is None or importlib.util.find_spec(REQUIRED_EXTRAS[extra]) is not None


def check_protocol(name: str) -> None:
    """Raise `InputError` for a protocol that does not exist."""
    if name not in PROTOCOLS:
        raise InputError(_unknown_name_error("protocol", name, PROTOCOLS))


def needs_order(
    models: Mapping[str, ModelSettings], tune: str, tuned: Collection[str], protocols: Collection[str]
) -> bool:
    """Whether a run keeps the order of likes: a model reads it, or its search may choose a recency exponent.

    Args:
        models: the settings by model.
        tune: `train.tune`.
        tuned: models with settings in the data set's file, which `auto` does not search.
        protocols: those by which a search may choose.
    """
    searched = {"off": (), "always": models}.get(tune, models.keys() - set(tuned))
    may_choose = any(isinstance(models[name], RecencySettings) for name in searched)
    return any(of.reads_order for of in models.values()) or (may_choose and not LATEST_PROTOCOLS.isdisjoint(protocols))


def _unknown_name_error(kind: str, name: str, known: Collection[str]) -> str:
    return f"{kind} {name}: unknown.{suggest_name(name, known)} Known: {', '.join(known)}."
