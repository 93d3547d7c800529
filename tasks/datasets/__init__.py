"""Data sets, one TOML file each: built-in ones here and the user's own in `<root>/datasets/NAME.toml`."""

import codecs
import os
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from oneclass.tasks.datasets.sections import LANDED_FILES, AttributeTable, Columns, Source, Titles
from oneclass.tasks.errors import InputError, suggest_name
from oneclass.tasks.rules.settings import DeclaredRules, Placement, Rules

TIME_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""The units of times in numbers: ticks in a second since 1970."""

BUILT_IN = Path(__file__).parent
MAX_NAME_LENGTH = 100
NAME_PATTERN = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_NAME_LENGTH - 1}}}")
RESERVED = ("datasets", "index.html")  # what else lies in a home
NAME_RULE = (
    "A name has ASCII letters, digits, '.', '_' and '-', begins with a letter or a digit, is at most "
    f"{MAX_NAME_LENGTH} long, is not {' or '.join(RESERVED)}, and differs from the home's other names by more than case"
)


class Dataset(BaseModel, frozen=True, extra="forbid"):
    """Facts about a data set that are needed before its logs are read."""

    name: str
    title: str = Field(default_factory=lambda given: given["name"])
    """One line for reports and messages; the name by default."""
    urls: tuple[str, ...] = ()
    """Where to download the raw files."""
    sha256: dict[str, str] = {}
    """Published digests of raw files, by file name."""
    licence: str = ""
    """One sentence on what the raw files may be used for."""
    files: tuple[str, ...] = Field(default=("*",), min_length=1)
    """Patterns of the raw files' names in a folder; `.gz` may follow each."""
    layout: Literal["recognised", "adjacency", "counted_adjacency"] = "recognised"
    """`adjacency`: lines `user item ...`, separated by blanks; `counted_adjacency`: lines `count item ...`, line n is
    user n."""
    columns: Columns = Columns()
    titles: Titles = Titles()
    items: AttributeTable | None = None
    """The table of items' attributes."""
    users: AttributeTable | None = None
    """The table of users' attributes."""
    delimiter: str | None = Field(default=None, min_length=1)
    """Field separator; by default detected in the header."""
    row_names: bool = False
    """Whether lines begin with a name of the row that the header leaves out, as R writes them."""
    encoding: str = ""
    """Of text that is not UTF-8, by Python's name, e.g. `windows-1252`; UTF-16 with a byte order mark needs none."""
    decimal: Literal[".", ","] | None = None
    """The decimal mark of values; by default detected."""
    time_format: str | tuple[str, ...] = ()
    """Of times: `s`, `ms`, `us` or `ns` since 1970, or formats of `strptime`, of a date alone with any time of
    day; by default detected."""
    timezone: str = "UTC"
    """Of times without a zone, e.g. `Europe/Berlin`."""
    missing_ids: tuple[str, ...] = (
        "NA", "N/A", "<NA>", "NaN", "nan", "NULL", "null", "None", r"\N", "Total", "Totals", "Grand Total", "Summe",
        "Gesamt", "Gesamtsumme",
    )  # fmt: skip
    """Ids that stand for a missing one, or for all: their lines are rejected."""
    events: dict[str, float] = {}
    """What an event of each kind adds to its pair of a user and an item, times its value; 0 leaves the kind out. Lines
    of other kinds are rejected."""
    value_min: float | None = None
    value_max: float | None = None
    """Lines with values outside these bounds are rejected."""
    max_future_days: float = Field(default=1, ge=0, le=1_000_000)
    """Lines with times later than the clock by more days are rejected."""
    max_reject_share: float = Field(default=0.01, ge=0, le=1)
    """More rejects than this share of the lines of a run's new files break the contract of `raw.rejects`; a file of the
    landing folder with more is set aside."""
    default_models: tuple[str, ...] = (
        "popularity", "transitions", "item_knn", "mrf_dense", "mrf_sparse", "slist", "slim", "wmf", "graph_filter",
        "paired_symbols", "repeat", "repeat_mixture", "blend",
    )  # fmt: skip
    """Models of a run without `--models`. `repeat` and `repeat_mixture` run where lists include seen items, `slist` and
    `transitions` where likes have an order."""
    rules: Rules = Rules()
    """What holds for every list of recommendations."""
    placements: dict[str, Placement] = {}
    """Places that show lists of their own, by name."""
    source: Source | None = None
    """Where new logs are taken from before the landing folder is read."""
    ingest: dict[str, Any] = {}
    binarize: dict[str, Any] = {}
    split: dict[str, Any] = {}
    models: dict[str, dict[str, Any]] = {}
    """Settings of single models, in `[models.<name>]`."""

    @model_validator(mode="after")
    def _check_sections(self) -> Self:
        if self.source and not {*LANDED_FILES} <= {*self.files}:
            object.__setattr__(self, "files", (*self.files, *LANDED_FILES))
        if "half_life_days" in self.events:
            raise ValueError("events.half_life_days: is no kind of event; it belongs under [binarize]")
        if self.events and (self.layout != "recognised" or self.columns.event == ()):
            raise ValueError("[events] needs a column with the kind of event")
        if unknown := [kind for kind in self.rules.not_event if kind not in self.events]:
            kinds = f"known: {', '.join(self.events)}" if self.events else "declare the kinds under [events]"
            raise ValueError(f"rules.not_event: {unknown[0]!r} is no kind of event; {kinds}")
        return self

    @field_validator("timezone")
    @classmethod
    def _check_timezone(cls, name: str) -> str:
        try:
            return ZoneInfo(name).key
        except (LookupError, ValueError, OSError) as error:
            raise ValueError(f"{name!r} is no time zone, such as Europe/Berlin") from error

    @field_validator("encoding")
    @classmethod
    def _check_encoding(cls, name: str) -> str:
        try:
            return codecs.lookup(name).name if name else ""
        except LookupError as error:
            raise ValueError(f"{name!r} is no encoding, such as windows-1252") from error

    @field_validator("time_format")
    @classmethod
    def _check_time_format(cls, formats: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for text in (formats,) if isinstance(formats, str) else formats:
            if text not in TIME_UNITS and "%" not in text:
                raise ValueError(f"{text!r} is none of {', '.join(TIME_UNITS)}, and no format of strptime")
        return formats

    @property
    def declared_rules(self) -> DeclaredRules:
        """The rules that lists obey, with the placements."""
        return DeclaredRules(rules=self.rules, placements=self.placements)

    @property
    def binarize_settings(self) -> dict[str, Any]:
        """The settings of `[binarize]`, with those of `[events]`."""
        return self.binarize | ({"event_weights": self.events} if self.events else {})


def check_name(name: str, root: Path, known: Collection[str]) -> None:
    """Raise `InputError` for a name that breaks `NAME_RULE`; of two that differ by case, one without a folder."""
    folders = {folder.name for folder in root.glob("*") if is_data_set(folder)}
    clash = next((one for one in sorted({*known, *folders}) if one != name and one.casefold() == name.casefold()), "")
    if NAME_PATTERN.fullmatch(name) and name.lower() not in RESERVED and (not clash or name in folders):
        return
    problem = f"there is {clash}" if clash else "and cannot be a name"
    raise InputError(
        f"data set {name!r}: unknown, {problem}. {NAME_RULE}. Choose another; to keep what has it, rename "
        f"{root / name} and {root / 'datasets' / f'{name}.toml'}."
    )


def is_data_set(folder: Path) -> bool:
    """Whether a folder of a home holds a data set."""
    # Path.exists would fail on a folder that this user cannot read.
    return any(os.path.exists(folder / part) for part in ("landing", "warehouse.duckdb", "published"))


def list_datasets(root: Path) -> list[str]:
    """List the data sets known to a home: the built-in ones and those in `<root>/datasets`."""
    return sorted({file.stem for folder in (BUILT_IN, root / "datasets") for file in folder.glob("*.toml")})


def read_declaration(name: str, root: Path) -> tuple[Path, dict[str, Any]]:
    """Return the file of a data set, the user's own or the built-in one, and what it declares; nothing if it is absent.

    Raises:
        InputError: the file is unreadable.
    """
    own = root / "datasets" / f"{name}.toml"
    path = own if own.is_file() else BUILT_IN / f"{name}.toml"
    try:
        return path, tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not TOML: {error}.") from error


def load_dataset(
    name: str,
    root: Path,
    *,
    with_logs: bool = False,
    is_declared: bool = False,
    columns: Mapping[str, str | Sequence[str]] | None = None,
) -> Dataset:
    """Load the data set `name`; a user's file overrides a built-in one of the same name.

    An undeclared name is a data set with the defaults of `Dataset` if its logs are named with it, or if its landing
    folder, warehouse or publication exists in the home, unless it looks like a misspelt known name.

    Args:
        is_declared: whether its file is about to be written, so that its name is no slip.
        columns: role -> column, which override those of the file.

    Raises:
        InputError: no data set has or can have that name, or its file is malformed.
    """
    known = list_datasets(root)
    check_name(name, root, known)
    if name not in known:
        hint = suggest_name(name, known)
        if (with_logs and (is_declared or not hint)) or is_data_set(root / name):
            return _validate(Path("--user, --item"), {"name": name, "columns": columns or {}})
        hint = hint or " Name its logs (--source) to take them as they are."
        raise InputError(
            f"data set {name}: unknown.{hint} Known: {', '.join(known)}. "
            f"Your own belongs in {root / 'datasets' / f'{name}.toml'}."
        )
    path, declared = read_declaration(name, root)
    if (own := declared.get("name", name)) != name:
        raise InputError(f"{path}: name is {own!r}; name the file {own}.toml or correct `name`.")
    if columns:
        declared["columns"] = {**declared.get("columns", {}), **columns}
    dataset = _validate(path, {"name": name, **declared})
    for section in ("titles", "items", "users"):
        if (table := getattr(dataset, section)) and table.file:
            table = table.model_copy(update={"file": str(path.parent / table.file)})
            dataset = dataset.model_copy(update={section: table})
    if dataset.source:
        dataset = dataset.model_copy(update={"source": dataset.source.model_copy(update={"file": str(path)})})
    return dataset


def _validate(path: Path, declared: dict[str, Any]) -> Dataset:
    try:
        return Dataset.model_validate(declared)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            schema = Dataset.model_json_schema()
            known = [name for section in (schema, *schema["$defs"].values()) for name in section["properties"]]
            raise InputError(f"{path}: unknown key {key}.{suggest_name(str(first['loc'][-1]), known)}") from error
        message = first["msg"].removeprefix("Value error, ")
        raise InputError(": ".join(filter(None, (str(path), key, f"{message}.")))) from error
