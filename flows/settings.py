"""Resolve the settings of a run in layers: the data set's own, the files of `--config`, `--set`, then the flags."""

import contextlib
import logging
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial, reduce
from pathlib import Path
from typing import Annotated, Any

from pydantic import ByteSize, Field, TypeAdapter, ValidationError

from oneclass.flows.parameters import BackfillParameters, RunParameters
from oneclass.tasks import datasets
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.demo import DemoSettings
from oneclass.tasks.errors import InputError
from oneclass.tasks.evaluate.own_metrics import choose_metrics
from oneclass.tasks.ingest.landing import IngestSettings
from oneclass.tasks.orchestration.notifications import NotifySettings
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.recommend.like_calibration import has_like
from oneclass.tasks.settings import (
    STAGE_SETTINGS,
    EvaluateSettings,
    TrainSettings,
    check_model,
    check_protocol,
    list_installed_models,
    needs_order,
    validate_settings,
)
from oneclass.tasks.split.settings import KeepTimes, SplitSettings
from oneclass.tasks.stores import home, resources
from oneclass.tasks.stores.fits import ModelSettings
from oneclass.tasks.stores.home import FileSettings, Home, Limits

logger = logging.getLogger(__name__)

DEFAULT_PROTOCOLS = ("strong_generalization", "leave_one_out", "next_events")
OPTIONAL_PROTOCOLS = ("next_events",)  # of these, those of logs that allow them
# Of a data set's list, left out where lists exclude seen items, and where likes have no order.
OPTIONAL_MODELS = ("repeat", "repeat_mixture", "slist", "transitions")
# With less, DuckDB cannot hold one block per thread.
MIN_MEMORY_BYTES = 256 * 10**6


@dataclass(frozen=True)
class RunSettings:
    """All validated settings of a run.

    Attributes:
        models: the settings of each model to train, by its name.
        optional_protocols: those of `protocols` that are left out where the log does not allow them.
        optional_models: those of `models` that are left out where the log does not have what they learn from.
        are_named: whether `--models` names the models, so that one that is too large is refused.
        given: the names of the settings that the command line or its files set, by model.
        rebuild: whether the events in the warehouse are published anew as in a new home: no log is read, and no gate
            keeps what is published.
    """

    home: Home
    dataset: Dataset
    sources: tuple[Path, ...]
    split_files: tuple[Path, ...]
    protocols: tuple[str, ...]
    optional_protocols: tuple[str, ...]
    models: dict[str, ModelSettings]
    optional_models: tuple[str, ...]
    given: dict[str, list[str]]
    ingest: IngestSettings
    binarize: BinarizeSettings
    split: SplitSettings
    train: TrainSettings
    evaluate: EvaluateSettings
    demo: DemoSettings
    publish: PublishSettings
    files: FileSettings
    notify: NotifySettings
    seed: int = 0
    since: date | None = None
    until: date | None = None
    replace: bool = False
    cluster: int | str | None = None
    rebuild: bool = False
    are_named: bool = False

    def describe(self) -> dict[str, Any]:
        """Return the settings that decide the run's numbers, as plain data for `operations.runs`."""
        stages = {
            name: getattr(self, name).model_dump(mode="json")
            for name in STAGE_SETTINGS
            if name != "notify" and (name != "demo" or self.is_demo)
        }
        lists = ("optional_models", "sources", "split_files", "protocols", "optional_protocols")
        return {
            **stages,
            "models": {name: settings.model_dump(mode="json") for name, settings in self.models.items()},
            **{name: [str(one) for one in getattr(self, name)] for name in lists},
            **{name: getattr(self, name) for name in ("seed", "since", "until")},
            "limits": asdict(self.home.limits),
        }

    @property
    def times(self) -> KeepTimes:
        """Whether the split keeps the times of edges: models need them, or optional ones if they run."""
        if any(settings.reads_times for name, settings in self.models.items() if name not in self.optional_models):
            return True
        return "auto" if self.optional_models else False

    @property
    def is_demo(self) -> bool:
        """Whether the run simulates its log."""
        return self.dataset.name == "demo" and not self.sources and not self.split_files


def resolve_settings(given: BackfillParameters) -> RunSettings:
    """Resolve and validate the settings of a run.

    Raises:
        InputError: naming the data set, model, protocol, setting or file that is wrong.
    """
    if given.since and given.until and given.since > given.until:
        raise InputError(f"--since {given.since}: is after --until {given.until}.")
    if given.workers is not None and given.dask is not None:
        raise InputError("--workers, --dask: give one of them, the number of processes or the address of a scheduler.")
    root = home.resolve_root(given.home)
    has_logs = bool(given.source or given.split_files)
    declared = datasets.load_dataset(given.dataset, root, with_logs=has_logs, columns=given.columns)
    defaults = {"ingest": declared.ingest, "binarize": declared.binarize_settings, "split": declared.split}
    defaults |= declared.models | ({"publish": {"titles": declared.titles.file}} if declared.titles.file else {})
    overrides = reduce(_merge_settings, [{}, *map(_read_config, given.config), nest_keys(given.settings)])
    sections = reduce(_merge_settings, [{}, defaults, overrides])
    model_names, are_named = given.models or list(declared.default_models), bool(given.models)
    if model_names == ["all"]:
        model_names, are_named = list_installed_models(), False
    for name in model_names:
        check_model(name)
    # Settings of models that this run leaves out are validated too, to report misspellings.
    names = [*sections, *STAGE_SETTINGS, *model_names]
    settings = {name: validate_settings(name, sections.get(name, {})) for name in names}
    settings["split"].require_used(overrides.get("split", {}))
    _check_publish_settings(settings["publish"], declared, model_names)
    choose_metrics(settings["evaluate"].metrics)
    if any(settings[name].reads_explicit_negatives for name in model_names):
        settings["binarize"] = settings["binarize"].model_copy(update={"explicit_negatives": True})
    protocols = _resolve_protocols(given.protocols, bool(given.split_files), declared)
    models = {name: settings[name] for name in model_names}
    if "order" not in sections["split"] and needs_order(models, settings["train"].tune, declared.models, protocols):
        settings["split"] = settings["split"].model_copy(update={"order": "auto"})
    return RunSettings(
        home=Home(root, declared.name, resolve_limits(given.threads, given.memory), settings["files"]),
        dataset=declared,
        sources=tuple(map(Path, given.source)),
        split_files=tuple(map(Path, given.split_files or ())),
        protocols=protocols,
        optional_protocols=() if given.protocols or given.split_files else OPTIONAL_PROTOCOLS,
        models=models,
        optional_models=() if are_named else tuple(filter(OPTIONAL_MODELS.__contains__, model_names)),
        given={name: list(overrides[name]) for name in models if name in overrides},
        are_named=are_named,
        **{name: settings[name] for name in STAGE_SETTINGS},
        cluster=given.workers if given.dask is None else given.dask,
        **{name: getattr(given, name) for name in ("seed", "since", "until", "replace")},
    )


def _check_publish_settings(publish: PublishSettings, declared: Dataset, model_names: Sequence[str]) -> None:
    """Refuse to publish a model that the run leaves out, and rules that the lists cannot obey."""
    if publish.model is not None and publish.model not in model_names:
        raise InputError(f"setting publish.model = {publish.model}: this run has only {', '.join(model_names)}.")
    able = () if publish.companion in ("auto", "none") else [name for name in model_names if has_like(name)]
    if publish.companion not in ("auto", "none", *able):
        raise InputError(
            f"setting publish.companion = {publish.companion}: is no model of this run with a like probability, of "
            f"which there are: {', '.join(able) or 'none'}. Name one of these, or auto, or none."
        )
    if declared.rules.again_after_days is not None and publish.seen == "exclude":
        raise InputError(
            f"[rules] again_after_days = {declared.rules.again_after_days}: needs lists with items that users had. "
            "Set publish.seen = include."
        )


def find_notify_settings(given: RunParameters) -> NotifySettings:
    """Return the settings of notifications that can be read, of a run whose settings cannot be resolved."""
    found: dict[str, Any] = {}
    for read in (*(partial(_read_config, path) for path in given.config), partial(nest_keys, given.settings)):
        with contextlib.suppress(InputError):
            found |= read().get("notify", {})
    try:
        return validate_settings("notify", found)
    except InputError:
        return validate_settings("notify", {})


def resolve_limits(threads: int | None, memory: str | None) -> Limits:
    """Return the resource limits of a run from --threads and --memory."""
    limits: dict[str, int] = {}
    if threads is not None:
        available = resources.available_cores()
        limits["threads"] = min(threads, available)
        if threads > available:
            logger.warning("--threads %d: this process may use %d cores, so %d are used", threads, available, available)
    if memory is not None:
        try:
            limits["memory"] = TypeAdapter(Annotated[ByteSize, Field(ge=MIN_MEMORY_BYTES)]).validate_python(memory)
        except ValidationError as error:
            raise InputError(
                f"--memory {memory}: write a size of at least {MIN_MEMORY_BYTES // 10**6} MB, such as 512MB or 4GB."
            ) from error
    return Limits(**limits)


def _read_config(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"--config {path}: cannot be read ({error.strerror}).") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"--config {path}: is not TOML: {error}.") from error


def nest_keys(dotted: Mapping[str, Any]) -> dict[str, Any]:
    """Return dotted settings, such as those of `--set`, as sections; that of `package.module:Class` has dots itself."""
    sections: dict[str, Any] = {}
    for key, value in dotted.items():
        module, colon, rest = key.rpartition(":")
        section, _, name = rest.partition(".")
        sections.setdefault(f"{module}{colon}{section}", {})[name] = value
    return sections


def _merge_settings(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Add a layer of settings."""
    for name, section in upper.items():
        if not isinstance(section, Mapping):
            raise InputError(f"setting {name}: belongs under a stage or a model, such as [binarize] or [mrf_dense].")
    return {name: {**lower.get(name, {}), **upper.get(name, {})} for name in [*lower, *upper]}


def _resolve_protocols(names: Sequence[str], has_split: bool, dataset: Dataset) -> tuple[str, ...]:
    has_features = dataset.items is not None and bool(dataset.items.kinds)
    default = (*DEFAULT_PROTOCOLS, "cold_items") if has_features else DEFAULT_PROTOCOLS
    names = tuple(names) or (("given",) if has_split else default)
    for name in names:
        check_protocol(name)
    if "given" in names and not has_split:
        raise InputError("protocol given: needs --split-files TRAIN TEST.")
    if has_split and "given" not in names:
        raise InputError("--split-files: are for the protocol given; add it to --protocols or leave that out.")
    if "cold_items" in names and not has_features:
        raise InputError(
            f"protocol cold_items: needs attributes of items, and {dataset.name} has none. Name the table and the "
            "columns that count under [items] in its TOML, or leave cold_items out of --protocols."
        )
    return tuple(dict.fromkeys(names))
