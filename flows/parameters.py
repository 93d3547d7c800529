"""The parameters of flows and commands, each declared once: a flag of the command line and a field of Prefect's form.

Cyclopts builds the command line from them, with the descriptions of their docstrings. Neither pydantic nor Prefect is
imported here, so that `--help` answers at once.
"""

import functools
import inspect
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from annotated_types import Ge, Lt
from cyclopts import Parameter, Token
from cyclopts.validators import Number
from docstring_parser import parse

if TYPE_CHECKING:
    from oneclass.tasks.datasets import Dataset
    from oneclass.tasks.stores.home import Home


def _parse_assignments(kind: Any, tokens: Sequence[Token]) -> dict[str, Any]:
    """Parse each `key=value` of `--set`: a dotted name, and a TOML value whose quotes may be omitted."""
    parsed: dict[str, Any] = {}
    for token in tokens:
        key, equals, value = token.value.partition("=")
        if not equals or "." not in key:
            raise ValueError(f"{token.value}: write it as name.setting=value, such as binarize.threshold=4.")
        try:
            parsed[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            parsed[key.strip()] = value.strip()
    return parsed


def _split_names(kind: Any, tokens: Sequence[Token]) -> list[str]:
    return [name.strip() for token in tokens for name in token.value.split(",") if name.strip()]


Assignments = Annotated[
    dict[str, Any], Parameter(name="--set", accepts_keys=False, n_tokens=-1, converter=_parse_assignments)
]
Count = Annotated[int, Ge(1), Parameter(validator=Number(gte=1))]
Seed = Annotated[int, Ge(0), Lt(2**63), Parameter(validator=Number(gte=0, lt=2**63))]
Names = Annotated[list[str], Parameter(n_tokens=-1, converter=_split_names)]


@dataclass(frozen=True, kw_only=True)
class DatasetParameters:
    """Parameters of every command.

    Attributes:
        dataset: a data set, built in or declared in HOME/datasets/NAME.toml; `demo` makes its own log
        home: the home of all data sets; by default $ONECLASS_HOME, else ./var
    """

    dataset: str
    home: str | None = None

    def find_home(self) -> "tuple[Home, Dataset]":
        """Return the data set's home and its declaration."""
        from oneclass.tasks import datasets
        from oneclass.tasks.stores import home

        root = home.resolve_root(self.home)
        dataset = datasets.load_dataset(self.dataset, root)
        return home.Home(root, dataset.name), dataset


@dataclass(frozen=True, kw_only=True)
class SettingParameters(DatasetParameters):
    """Parameters of commands that take the settings of runs.

    Attributes:
        config: files of settings in TOML: [stage or model] name = value; a later one overrides an earlier one
        settings: single settings, such as binarize.threshold=4 mrf_dense.l2=500 (in Prefect's UI
            {"binarize.threshold": 4, "mrf_dense.l2": 500}); they override all files
    """

    config: list[str] = field(default_factory=list[str])
    settings: Assignments = field(default_factory=dict[str, Any])

    def to_backfill(self, **more: Any) -> "BackfillParameters":
        """Return the backfill parameters with these values, and those in `more`."""
        names = {one.name for one in fields(BackfillParameters)}
        return BackfillParameters(**{name: value for name, value in vars(self).items() if name in names} | more)


@dataclass(frozen=True, kw_only=True)
class RunParameters(SettingParameters):
    """Parameters of every flow.

    Attributes:
        seed: the seed of every random draw; equal seeds give equal bits
        threads: cores to use; all available ones by default, which is also the maximum
        memory: memory for DuckDB, such as 4GB, past which it spills to the home; by default a third of the machine's
            or container's, at most 3.5 GiB or, if that is more, a seventh
        models: the models to train, such as slim,wmf, or all; by default the data set's list. A class of another
            package is package.module:Class
        protocols: the protocols to evaluate by: by default strong_generalization, leave_one_out and, of logs with times
            whose users return, next_events, and of data sets with attributes of items, cold_items; given with
            --split-files
        workers: fit and judge on a Dask cluster of this many processes of this machine, which ends with the run
        dask: fit and judge on the Dask cluster of the scheduler there, tls://HOST:PORT, or tcp://HOST:PORT on this
            machine
    """

    seed: Seed = 0
    threads: Count | None = None
    memory: str | None = None
    models: Names = field(default_factory=list[str])
    protocols: Names = field(default_factory=list[str])
    workers: Count | None = None
    dask: str | None = None


@dataclass(frozen=True, kw_only=True)
class ColumnParameters(DatasetParameters):
    """Parameters of commands that read logs by name.

    Attributes:
        source: raw log files or folders; by default those in HOME/NAME/landing
        user: the logs' column of users, as [columns] names it; by number where a file has no header
        item: the logs' column of items
        value: the logs' column of values; - for none
        time: the logs' column of times, or those of the date and of the time of day; - for none
        event: the logs' column with the kind of event, with [events]; - to count all kinds alike
    """

    source: list[str] = field(default_factory=list[str])
    user: str | None = None
    item: str | None = None
    value: str | None = None
    time: list[str] = field(default_factory=list[str])
    event: str | None = None

    @property
    def columns(self) -> dict[str, str | list[str]]:
        """The columns that are named, by their roles."""
        return {role: name for role in ("user", "item", "value", "time", "event") if (name := getattr(self, role))}


@dataclass(frozen=True, kw_only=True)
class NightlyRetrainParameters(RunParameters):
    """Parameters of the flow `nightly-retrain`."""

    dataset: str = "demo"


@dataclass(frozen=True, kw_only=True)
class BackfillParameters(ColumnParameters, RunParameters):
    """Parameters of the flow `backfill`.

    Attributes:
        split_files: adjacency lists that come as a split, TRAIN and TEST; evaluated by the protocol `given`
        since: events from this day on (YYYY-MM-DD)
        until: events up to the end of this day
        replace: keep only the sources in the warehouse: the events of all other logs are deleted
    """

    split_files: tuple[str, str] | None = None
    since: date | None = None
    until: date | None = None
    replace: bool = False


@dataclass(frozen=True, kw_only=True)
class ReplayParameters(BackfillParameters):
    """Parameters of the command `flows.backfill`: one run, or one per night of a period.

    Attributes:
        every: replay history night by night, from the night of --since to that of --until, at this step, such as 1d or
            2w: each on all events up to the end of its day. Completed nights are skipped
        dry_run: with --every: list the nights done and missing, and run none
    """

    every: str | None = None
    dry_run: bool = False


def describe_parameters(kind: type[DatasetParameters]) -> dict[str, str]:
    """Return the description of each parameter."""
    documented = [entry for of in reversed(kind.__mro__) for entry in parse(of.__doc__ or "").params]
    descriptions = {entry.arg_name: " ".join((entry.description or "").split()) for entry in documented}
    return {one.name: descriptions[one.name] for one in fields(kind)}


def find_default(parameter: Field[Any]) -> Any:
    """Return the default of a parameter, or `inspect.Parameter.empty` if it is required."""
    if parameter.default_factory is not MISSING:
        return parameter.default_factory()
    return inspect.Parameter.empty if parameter.default is MISSING else parameter.default


def flow_with_parameters(kind: type[RunParameters]) -> Callable[[Callable[[Any], Any]], Callable[..., Any]]:
    """Turn a function of one `kind` into a function of its fields, which Prefect shows as single parameters.

    Prefect reads types and defaults from the signature, and descriptions from the docstring.
    """
    from pydantic import WithJsonSchema

    from oneclass.tasks.settings import MODELS, PROTOCOLS

    hints = get_type_hints(kind, include_extras=True)
    # Prefect's pages make a choice of these values.
    for name, values in {"models": sorted(MODELS), "protocols": list(PROTOCOLS)}.items():
        if name in hints:
            hints[name] = list[Annotated[str, WithJsonSchema({"type": "string", "enum": values})]]

    def decorate(function: Callable[[Any], Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def with_fields(**given: Any) -> Any:
            return function(kind(**given))

        keyword = inspect.Parameter.KEYWORD_ONLY
        # Read by `inspect.signature`.
        with_fields.__signature__ = inspect.Signature(  # pyright: ignore[reportAttributeAccessIssue]
            [
                inspect.Parameter(one.name, keyword, default=find_default(one), annotation=hints[one.name])
                for one in fields(kind)
            ],
            return_annotation=inspect.signature(function).return_annotation,
        )
        descriptions = [f"    {name}: {text}" for name, text in describe_parameters(kind).items()]
        with_fields.__doc__ = "\n".join([inspect.getdoc(function) or "", "", "Args:", *descriptions])
        return with_fields

    return decorate
