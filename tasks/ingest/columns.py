"""Find the columns of a log by their names, or show them and ask; and say what their cells suggest."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.datasets.sections import KNOWN_NAMES, ROLES
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest import times
from oneclass.tasks.terminal import format_grid

RECBOLE_TYPE = re.compile(r":(token|float|token_seq|float_seq)$")
BLANKS = " \t\u00a0\u200b\u2060\ufeff"
"""Trimmed from ids: blanks that a table shows, and those that it does not."""
GROUPED_NUMBER = re.compile(r"\d{1,3}([.,]\d{3})+")
AMOUNT = re.compile(rf"(?i){times.NUMBER.pattern}|-?(\d+|\d{{1,3}}([.,]\d{{3}})+)([.,]\d+)?-?|true|false")
"""A number, maybe with a comma or with the sign behind it, or whether something was liked."""
ROUNDED_NUMBER = re.compile(r"-?\d([.,]\d+)?[eE]\+\d+")
ID_NAMES = frozenset(KNOWN_NAMES["user"] + KNOWN_NAMES["item"])
MIN_SHARE, MAX_KINDS = 0.5, 8
WHAT = {"user": "the user", "item": "the item", "value": "the value of an event", "time": "the time",
        "event": "the kind of event"}  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """The first records of a log: what messages call it and its form, names of columns, and cells as text.

    Columns without a header are called by their numbers, from 1.
    """

    source: str
    form: str
    names: Sequence[str]
    rows: Sequence[Sequence[str]]
    has_header: bool = True

    def column(self, position: int) -> list[str]:
        """Return the cells of a column, counted from 1."""
        return [row[position - 1] for row in self.rows]


class UnknownColumns(InputError):
    """The columns of a log leave a doubt, or its `kinds` of events; the message asks, and has a command to complete."""

    def __init__(
        self, sample: Sample, question: str, known: Mapping[str, int], asked: Sequence[str], kinds: Sequence[str] = ()
    ) -> None:
        names = " ".join(f"--{role} {'COLUMN' if sample.has_header else 'N'}" for role in asked)
        found = ", ".join(f"{sample.names[at - 1].strip()} ({role})" for role, at in known.items())
        super().__init__(
            f"{sample.source}: {len(sample.rows):,} lines looked at, {len(sample.names)} columns, {sample.form}. "
            f"{f'Known: {found}. ' if found else ''}{question} Name each on the command line, or under [columns] in "
            f"the data set's file:\n\n{_describe_columns(sample)}\n\n"
            f"  python -m flows.inspect --source {sample.source.partition(', line')[0]} {names}"
        )
        self.kinds = tuple(kinds)


def match_columns(sample: Sample, dataset: Dataset) -> dict[str, int]:
    """Return the position, from 1, of the column of each role; `clock` is the second of two columns of the time.

    A column that the data set's file names counts alone; otherwise the one whose whole name is known for the role.

    Raises:
        UnknownColumns: a role that is needed has no column, or several, or one that only a person can read.
    """
    found = {
        role: _find_known(sample.names, role) if stated is None else _find_stated(sample, role, stated, dataset)
        for role, stated in dataset.columns
    }
    asked = [role for role in ("user", "item") if not found[role]]
    asked += [role for role, places in found.items() if len(places) > 1 and getattr(dataset.columns, role) is None]
    positions = {role: places[0] for role, places in found.items() if places and role not in asked}
    _ask_for_columns(sample, positions, asked, dataset)
    if "event" in positions and not dataset.events:
        _ask_for_weights(sample, positions, is_stated=bool(dataset.columns.event))
        del positions["event"]
    if dataset.events and "event" not in positions:
        raise UnknownColumns(sample, f"Which column is {WHAT['event']}?", positions, ["event"])
    if len(found["time"]) > 1:
        positions["clock"] = found["time"][1]
    return positions


def normalize_name(name: str) -> str:
    """Return a column's name as `KNOWN_NAMES` has it."""
    return re.sub(r"[\s-]+", "_", RECBOLE_TYPE.sub("", name.strip(BLANKS).lower()))


def count_known(names: Sequence[str], dataset: Dataset) -> int:
    """Count the roles whose columns are among some names."""
    stripped = {name.strip(BLANKS).lower() for name in names}
    return sum(
        bool(_find_known(names, role)) if one is None else any(name.lower() in stripped for name in one)
        for role, one in dataset.columns
    )


def _find_known(names: Sequence[str], role: str) -> list[int]:
    return [at for at, name in enumerate(names, 1) if normalize_name(name) in KNOWN_NAMES[role]]


def _find_stated(sample: Sample, role: str, stated: Sequence[str], dataset: Dataset) -> list[int]:
    """Return the places of the columns that the data set's file names; of `time` all, of others the first there is."""
    names = [name.strip(BLANKS).lower() for name in sample.names]
    wanted = [name.strip().lower() for name in stated]
    places = [names.index(name) + 1 for name in wanted if name in names]
    what, options = "", [role for role in ROLES if getattr(dataset.columns, role)]
    if twice := [name for name in wanted if names.count(name) > 1]:
        what = f"Two are called {twice[0]}: give them different names in the log, or read it by a query."
    elif (stated and not places) or (role == "time" and len(places) < len(stated)):
        what = f"None is called {next(name for name in wanted if name not in names)}."
    if what:
        raise UnknownColumns(sample, f"{what} Which column is {WHAT[role]}?", {}, options)
    return places if role == "time" else places[:1]


def _ask_for_columns(sample: Sample, positions: Mapping[str, int], asked: Sequence[str], dataset: Dataset) -> None:
    """Refuse a log with roles in doubt, or with an unread value or time where neither user nor item is stated."""
    questions = [f"Which column is {' and which '.join(WHAT[role] for role in asked)}?"] if asked else []
    unread: dict[str, str] = {}
    if asked or (dataset.columns.user is None and dataset.columns.item is None):
        unread = {role: name for role, name in find_unread(sample, positions, dataset).items() if role not in asked}
    for role, name in unread.items():
        without = "every line counts 1" if role == "value" else "events have no times"
        questions.append(f"Is {name}, or another column, {WHAT[role]}? If {without}, say --{role} -.")
    if questions:
        raise UnknownColumns(sample, " ".join(questions), positions, [*asked, *unread])


def _ask_for_weights(sample: Sample, positions: Mapping[str, int], is_stated: bool) -> None:
    """Refuse a log with several kinds of events, or a stated column of them, whose weights are not declared."""
    kinds = Counter(cell.strip() for cell in sample.column(positions["event"]) if cell.strip())
    if len(kinds) > 1 or is_stated:
        shown = ", ".join(f"{kind} ({count:,})" for kind, count in kinds.most_common())
        name = sample.names[positions["event"] - 1].strip()
        raise UnknownColumns(
            sample,
            f"The column {name} has kinds of events: {shown}. What does an event of each kind add? State it under "
            "[events] in the data set's file, such as purchase = 3; or count all alike with --event -.",
            positions,
            ["event"],
            list(kinds),
        )


def find_unread(sample: Sample, positions: Mapping[str, int], dataset: Dataset) -> dict[str, str]:
    """Find columns that may be the value or the time of events, where the data set's file says nothing of that role.

    While the column of the user or of the item is not known, numbers may be ids: of a log without a header, or of one
    without further columns.
    """
    found, free = dict[str, str](), _find_free(sample, positions)
    in_time = [at for at, cells in free.items() if times.may_be_times(cells) and not _is_id(sample, at)]
    missing = len({"user", "item"} - positions.keys())
    are_more = not missing or (sample.has_header and len(free) - len(in_time) > missing)
    rest = {at: set(cells) for at, cells in free.items() if at not in in_time and not _is_id(sample, at)}
    in_value = [at for at, cells in rest.items() if are_more and len(cells) > 1 and all(map(AMOUNT.fullmatch, cells))]
    in_value.sort(key=lambda at: len(rest[at]))  # what counts has fewer values than what measures
    for role, places in {"value": in_value, "time": in_time}.items():
        if places and role not in positions and getattr(dataset.columns, role) is None:
            found[role] = sample.names[places[0] - 1].strip()
    return found


def _find_free(sample: Sample, positions: Mapping[str, int]) -> dict[int, list[str]]:
    """Return the filled cells of each column that has no role and is not all empty."""
    places = [at for at in range(1, len(sample.names) + 1) if at not in positions.values()]
    filled = {at: [cell.strip() for cell in sample.column(at) if cell.strip()] for at in places}
    return {at: cells for at, cells in filled.items() if cells}


def _are_kinds(cells: Sequence[str]) -> bool:
    """Whether cells have a few words, such as `paid` and `cancelled`."""
    kinds = [*{cell.strip() for cell in cells} - {""}]
    are_words = not any(map(AMOUNT.fullmatch, kinds)) and not times.are_times(kinds)
    return are_words and 1 < len(kinds) <= min(MAX_KINDS, len(cells) // 10)


def _is_id(sample: Sample, at: int) -> bool:
    name = sample.names[at - 1]
    return not name.strip() or normalize_name(name).endswith("id")


def _describe_columns(sample: Sample) -> str:
    """Return a table of the columns: name, type, share empty, number of different cells, and three of them."""
    table = [("column", "type", "empty", "different", "for example")]
    for at, name in enumerate(sample.names, 1):
        cells = [cell.strip() for cell in sample.column(at)]
        filled = list(dict.fromkeys(filter(None, cells)))
        row = (name.strip(), _describe_type(filled), f"{cells.count('') / max(len(cells), 1):.0%}", str(len(filled)))
        table.append((*row, ", ".join(cell[:24] + "..." * (len(cell) > 24) for cell in filled[:3])))
    return format_grid(table)


def _describe_type(cells: Sequence[str]) -> str:
    if not cells:
        return "empty"
    if times.are_times(cells):
        return "time"
    if all(map(times.NUMBER.fullmatch, cells)):
        return "number" if any("." in cell for cell in cells) else "whole"
    return "nested" if all(cell[0] in "[{" and cell[-1] in "]}" for cell in cells) else "text"


def describe_doubts(sample: Sample, positions: Mapping[str, int], dataset: Dataset) -> tuple[str, ...]:
    """Return a sentence on each form of cells that may not be what it seems. Nothing is changed for it."""
    doubts = []
    texts = {role: [cell for cell in sample.column(at) if cell.strip()] for role, at in positions.items()}
    for role in ("user", "item"):
        doubts += _describe_ids(role, texts[role])
    for mark in "|,;":
        lists = [cell for cell in texts["item"] if mark in cell and not GROUPED_NUMBER.fullmatch(cell)]
        if len(lists) > MIN_SHARE * len(texts["item"]):
            doubts.append(
                f"most cells of the item hold {mark!r}, such as {lists[0][:60]!r}: each is taken as one item. If they "
                f"list several, a query reads them: unnest(string_split(COLUMN, '{mark}'))"
            )
    negative = next((cell for cell in texts.get("value", ()) if cell.strip(" 0123456789.,") == "-"), "")
    if negative and not dataset.binarize.get("sum_values"):
        doubts.append(f"some values are negative, such as {negative}: if they are returns, set binarize.sum_values")
    free = _find_free(sample, positions)
    kinds = [sample.names[at - 1].strip() for at in free if _are_kinds(sample.column(at))]
    if kinds and "event" not in positions and dataset.columns.event is None:
        doubts.append(f"kinds of events count alike, if {' or '.join(kinds)} has them: name it, or say --event -")
    for role, name in find_unread(sample, positions, dataset).items():
        doubts.append(f"column {name} may be {WHAT[role]}, which is not read: name it, or say --{role} -")
    return (*doubts, *times.describe_doubts(texts.get("time", ())))


def _describe_ids(role: str, cells: Sequence[str]) -> Iterator[str]:
    if rounded := [cell for cell in cells if ROUNDED_NUMBER.fullmatch(cell.strip())]:
        yield (
            f"{len(rounded):,} ids of the {role} are rounded by a spreadsheet, such as {rounded[0].strip()}: different "
            "ones may be one now. Export them anew, as text"
        )
    if unseen := [cell for cell in cells if cell.strip(BLANKS) != cell.strip(" \t")]:
        yield f"{len(unseen):,} ids of the {role} have blanks around them that are not seen: they are trimmed"
    composed = [cell == unicodedata.normalize("NFC", cell) for cell in cells if not cell.isascii()]
    if 0 < sum(composed) < len(composed):
        yield f"ids of the {role} are in two normal forms of Unicode, which differ: they are kept apart"
