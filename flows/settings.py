"""The settings of a run: the data set's own, then the files of `--config`, then `--set`, then the flags."""

import difflib
import functools
import importlib.util
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from models.base import ModelSettings
from models.catalogue import MODELS
from tasks import datasets
from tasks.binarize import BinarizeSettings
from tasks.datasets import Dataset
from tasks.demo.story import DemoSettings
from tasks.errors import InputError
from tasks.protocols import PROTOCOLS
from tasks.publish import PublishSettings
from tasks.split import SplitSettings
from tasks.stores.home import Home, Limits
from tasks.train import TrainSettings

STAGES: dict[str, type[BaseModel]] = {
    "binarize": BinarizeSettings,
    "split": SplitSettings,
    "train": TrainSettings,
    "demo": DemoSettings,
    "publish": PublishSettings,
}
EXTRAS = {"neural": "torch"}  # the module that an optional extra of the installation brings


@dataclass(frozen=True)
class RunSettings:
    """Everything that a run is told; every part of it has been validated."""

    home: Home
    dataset: Dataset
    sources: tuple[Path, ...]
    split_files: tuple[Path, Path] | None
    protocols: tuple[str, ...]
    models: dict[str, ModelSettings]
    binarize: BinarizeSettings
    split: SplitSettings
    train: TrainSettings
    demo: DemoSettings
    publish: PublishSettings
    seed: int = 0
    since: date | None = None
    until: date | None = None

    def describe(self) -> dict[str, Any]:
        """Plain data for `operations.runs`: what decides the run's numbers."""
        stages = {
            name: getattr(self, name).model_dump(mode="json") for name in STAGES if name != "demo" or self.is_demo
        }
        fitted = {name: settings.model_dump(mode="json") for name, settings in self.models.items()}
        return {
            **stages,
            "models": fitted,
            "sources": [str(path) for path in self.sources],
            "split_files": [str(path) for path in self.split_files or ()],
            "protocols": list(self.protocols),
            "seed": self.seed,
            "since": self.since,
            "until": self.until,
            "limits": asdict(self.home.limits),
        }

    @property
    def is_demo(self) -> bool:
        """The log is made by the program itself."""
        return self.dataset.name == "demo" and not self.sources and self.split_files is None


def resolve(
    dataset: str,
    *,
    home: str | Path | None = None,
    source: Sequence[str | Path] = (),
    models: Sequence[str] = (),
    split_files: Sequence[str | Path] = (),
    protocols: Sequence[str] = (),
    config: Sequence[str | Path] = (),
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    threads: int | None = None,
    since: date | None = None,
    until: date | None = None,
) -> RunSettings:
    """Settings of a run from what a person gave.

    Args:
        config: TOML files of settings, a later one going before an earlier.
        settings: single settings by dotted name, which go before all files.

    Raises:
        InputError: naming the data set, model, protocol, setting or file that is wrong.
    """
    root = Path(home or os.environ.get("ONECLASS_HOME") or "var")
    declared = datasets.load(dataset, root)
    own = {"binarize": declared.binarize, "split": declared.split, **declared.models}
    given = functools.reduce(_merged, [{}, *map(_read_config, config), _nested(settings or {})])
    sections = _merged(own, given)
    unknown = [name for name in sections if name not in STAGES and name not in MODELS]
    if unknown:
        raise InputError(_unknown("setting", unknown[0], [*STAGES, *MODELS]))
    chosen = tuple(models) or tuple(declared.default_models)
    for name in chosen:
        if name not in MODELS:
            raise InputError(_unknown("model", name, MODELS))
        _installed(name)
    for name, section in sections.items():
        _validated(name, section)  # also those of models that this run leaves out: a misspelling is told
    _validated("split", sections.get("split", {})).require_used(given.get("split", {}))
    published = sections.get("publish", {}).get("model")
    if published is not None and published not in chosen:
        raise InputError(f"setting publish.model = {published}: is not among this run's models, {', '.join(chosen)}.")
    if not 0 <= seed < 2**63:
        raise InputError(f"--seed {seed}: must lie between 0 and 2^63 - 1.")
    if threads is not None and threads < 1:
        raise InputError(f"--threads {threads}: must be at least 1.")
    if since and until and since > until:
        raise InputError(f"--since {since}: is after --until {until}.")
    return RunSettings(
        home=Home(root, declared.name, Limits(threads=threads) if threads else Limits()),
        dataset=declared,
        sources=tuple(Path(path) for path in source),
        split_files=_pair(split_files),
        protocols=_protocols(protocols, bool(split_files)),
        models={name: _validated(name, sections.get(name, {})) for name in chosen},
        **{name: _validated(name, sections.get(name, {})) for name in STAGES},
        seed=seed,
        since=since,
        until=until,
    )


def parse_assignment(text: str) -> tuple[str, Any]:
    """`key=value` of `--set`: a dotted name, and a value written as in TOML (quotes may be left out)."""
    key, equals, value = text.partition("=")
    if not equals or "." not in key:
        raise InputError(f"--set {text}: write it as name.setting=value, such as binarize.threshold=4.")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def _read_config(path: str | Path) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"--config {path}: cannot be read ({error.strerror}).") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"--config {path}: is not TOML: {error}.") from error


def _nested(dotted: Mapping[str, Any]) -> dict[str, Any]:
    sections: dict[str, Any] = {}
    for key, value in dotted.items():
        section, _, name = key.partition(".")
        sections.setdefault(section, {})[name] = value
    return sections


def _merged(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    for name, section in [*lower.items(), *upper.items()]:
        if not isinstance(section, Mapping):
            raise InputError(f"setting {name}: belongs under a stage or a model, such as [binarize] or [mrf_dense].")
    return {name: {**lower.get(name, {}), **upper.get(name, {})} for name in [*lower, *upper]}


def _validated(name: str, section: Mapping[str, Any]) -> Any:
    """The settings model of a stage or model, or an error that names the dotted setting."""
    kind = STAGES[name] if name in STAGES else MODELS[name].Settings
    try:
        return kind(**section)
    except ValidationError as error:
        first = error.errors()[0]
        setting = ".".join([name, *map(str, first["loc"])])
        if first["type"] == "extra_forbidden":
            raise InputError(
                _unknown("setting", setting, [f"{name}.{known}" for known in kind.model_fields])
            ) from error
        raise InputError(f"setting {setting} = {first['input']!r}: {first['msg']}.") from error


def _installed(name: str) -> None:
    """Refuse a model that needs an extra of the installation that is absent."""
    extra = MODELS[name].extra
    if extra and importlib.util.find_spec(EXTRAS[extra]) is None:
        raise InputError(
            f"model {name}: needs {EXTRAS[extra]}, which is not installed. It is in the extra {extra}: "
            f"python -m pip install -c constraints.txt -e '.[{extra}]'"
        )


def _protocols(names: Sequence[str], has_split: bool) -> tuple[str, ...]:
    names = tuple(names) or (("given",) if has_split else ("strong_generalization", "leave_one_out"))
    for name in names:
        if name not in PROTOCOLS:
            raise InputError(_unknown("protocol", name, PROTOCOLS))
    if "given" in names and not has_split:
        raise InputError("protocol given: needs --split-files TRAIN TEST.")
    if has_split and "given" not in names:
        raise InputError("--split-files: are for the protocol given; add it to --protocols or leave that out.")
    return tuple(dict.fromkeys(names))


def _pair(files: Sequence[str | Path]) -> tuple[Path, Path] | None:
    if not files:
        return None
    if len(files) != 2:
        raise InputError(f"--split-files: takes two files, TRAIN and TEST; {len(files)} given.")
    return Path(files[0]), Path(files[1])


def _unknown(kind: str, name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    return f"{kind} {name}: unknown.{hint} Known: {', '.join(known)}."
