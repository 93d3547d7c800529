"""Find the columns of a log by their names, or say which of them may be which."""

import json
import re
from collections.abc import Mapping, Sequence

from oneclass.tasks.datasets import Columns, Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.log_format import ROLES
from oneclass.tasks.ingest.times import are_clocks, are_dates, are_times

HINTS = {
    "user": ("user", "uid", "cust", "client", "member", "visitor", "reviewer", "account", "buyer", "person", "kunde",
             "session", "mail"),
    "item": ("item", "iid", "product", "sku", "asin", "movie", "song", "track", "artist", "book", "article", "artikel",
             "isbn", "game", "business", "place", "recipe", "anime", "listing", "title"),
    "value": ("rating", "score", "star", "overall", "qty", "quantit", "menge", "play", "count", "weight", "amount"),
    "time": ("time", "date", "datum", "created", "unix", "ts", "when", "day"),
}  # fmt: skip
"""Parts of column names that suggest a role; those of up to three letters as a word of their own."""
MAX_PART_LETTERS = 3
NAME_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
TYPE_SUFFIX = re.compile(r":(token|float|token_seq|float_seq)$")
"""What RecBole's atomic files add to the names of their columns."""
LIST_MARKS = "|,; "
MIN_LIST_SHARE = 0.2


class UnknownColumns(InputError):
    """The columns of a log lack roles; the message has the lines of a data set's file that may help.

    Attributes:
        names: of the columns.
    """

    def __init__(
        self,
        source: str,
        names: Sequence[str],
        lacking: Sequence[str],
        dataset: Dataset,
        samples: Mapping[str, Sequence[str]] | None = None,
        more: str = "",
    ) -> None:
        super().__init__(_explain_lacking(source, names, lacking, dataset, samples or {}) + more)
        self.names = list(names)


def match_columns(header: Sequence[str], columns: Columns) -> tuple[dict[str, int], list[str]]:
    """Find the position, from 1, of the first accepted name of each role in `header`, and the required roles without
    one.

    A value is not required if `header` has no column for it besides user, item and time.
    """
    lowered = [name.strip().lower() for name in header]
    untyped = [TYPE_SUFFIX.sub("", name) for name in lowered]
    positions = {}
    for role in (*ROLES, "clock", "event"):
        accepted = [name.lower() for name in getattr(columns, role)]
        for known in (lowered, untyped):
            if role not in positions and (match := next((name for name in accepted if name in known), None)):
                positions[role] = known.index(match) + 1
    unread = [] if columns.time else [name.lower() for name in Columns().time]
    named = sum(bool(name) and name not in unread for name in lowered)  # an index column has no name
    needed = ["user", "item", *(["value"] if columns.value and len(positions) < named else [])]
    needed += [role for role in ("clock", "event") if getattr(columns, role)]
    return positions, [role for role in needed if role not in positions]


def check_unique(source: str, header: Sequence[str], positions: Sequence[tuple[str, int | str]]) -> None:
    """Reject a header in which two columns have the name of a role.

    Raises:
        InputError: they have.
    """
    lowered = [name.strip().lower() for name in header]
    for role, position in positions:
        name = lowered[int(position) - 1]
        if lowered.count(name) > 1:
            raise InputError(
                f"{source}: two columns are called {name}, which is the {role}. Rename one, or name another column as "
                f"{role} under [columns] in the data set's file."
            )


def _explain_lacking(
    source: str,
    names: Sequence[str],
    lacking: Sequence[str],
    dataset: Dataset,
    samples: Mapping[str, Sequence[str]],
) -> str:
    """Return the refusal of a log whose columns lack roles, with the lines of a data set's file that help."""
    shown = ", ".join(name.strip() for name in names if name.strip())[:300]
    return (
        f"{source}: has the columns {shown}, and none of them is known as {' or '.join(lacking)}. State which is which "
        f"in the data set's file, datasets/{dataset.name}.toml in the home:\n\n"
        f"{suggest_columns(names, dataset, samples)}"
    )


def suggest_columns(names: Sequence[str], dataset: Dataset, samples: Mapping[str, Sequence[str]] | None = None) -> str:
    """Return the table `[columns]` of a data set's file, guessed from a log's column names.

    Args:
        samples: texts of each column, which show a date apart from its time of day, and lists of items.
    """
    chosen, _ = guess_columns(names, dataset)
    chosen = pair_clock(chosen, samples or {})
    for role in ("user", "item"):
        free = [name for name in names if name.strip() and name not in chosen.values()]
        chosen.setdefault(role, next(iter(free), "COLUMN"))
    if dataset.events:
        chosen.setdefault("event", "COLUMN")
    mark = find_list_mark((samples or {}).get(chosen["item"], []))
    lines = [f"item_separator = {json.dumps(mark)}"] if mark and not dataset.item_separator else []
    lines.append("[columns]")
    roles = [role for role in (*ROLES, "clock", "event") if role in chosen]
    lines += [f"{role} = [{json.dumps(chosen[role].strip(), ensure_ascii=False)}]" for role in roles]
    lines += ["value = []    # every line counts 1"] if "value" not in chosen else []
    lines += ["time = []"] if not dataset.columns.time else []
    return "\n".join(lines)


def guess_columns(names: Sequence[str], dataset: Dataset) -> tuple[dict[str, str], bool]:
    """Guess the column of each role by its name.

    Returns:
        role -> column, and whether the names leave no other choice: each role has one column whose name suggests it
        and no other role, and user and item have one.
    """
    positions, _ = match_columns(names, dataset.columns)
    chosen = {role: names[position - 1] for role, position in positions.items()}
    is_certain = not dataset.events
    for role in ROLES:
        free = [name for name in names if name.strip() and name not in chosen.values()]
        hinted = list(dict.fromkeys(name for hint in HINTS[role] for name in free if _suggests(name, hint)))
        if role in chosen or not hinted or not getattr(dataset.columns, role):
            continue
        clear = [name for name in hinted if not _suggests_another(name, role)]
        is_certain &= len(clear) == 1
        chosen[role] = (clear or hinted)[0]
    return chosen, is_certain and "user" in chosen and "item" in chosen


def pair_clock(
    chosen: Mapping[str, str], samples: Mapping[str, Sequence[str]], names: Sequence[str] = ()
) -> dict[str, str]:
    """Return the chosen columns with that of the date as time, where the one chosen has times of day alone.

    Args:
        samples: texts of each column.
        names: columns that are preferred for the date.
    """
    clock = chosen.get("time", "")
    if "clock" in chosen or not are_clocks(samples.get(clock, ())):
        return dict(chosen)
    free = [name for name in samples if name not in chosen.values() and are_dates(samples[name])]
    lowered = [name.strip().lower() for name in free]
    known = [free[lowered.index(name.lower())] for name in names if name.lower() in lowered]
    return {**chosen, "time": (known or free)[0], "clock": clock} if free else dict(chosen)


def find_unread_times(
    chosen: Mapping[str, str], samples: Mapping[str, Sequence[str]], dataset: Dataset
) -> tuple[str, ...]:
    """Return what to ask about a log without times of which another column has dates or times."""
    if "time" in chosen or not dataset.columns.time:
        return ()
    found = [name for name, texts in samples.items() if name not in chosen.values() and are_times(texts)]
    if not found:
        return ()
    name = json.dumps(found[0].strip(), ensure_ascii=False)
    return (f"times are not read: if {found[0].strip()} has them, state time = [{name}] under [columns]",)


def _suggests(name: str, hint: str) -> bool:
    if len(hint) <= MAX_PART_LETTERS:
        return hint in [word.lower() for word in NAME_WORDS.findall(name)]
    return hint in name.lower()


def _suggests_another(name: str, role: str) -> bool:
    """Whether a column's name suggests a role besides `role`, as `Lineitem quantity` does."""
    return any(_suggests(name, hint) for other in ROLES if other != role for hint in HINTS[other])


def suggests_role(name: str) -> bool:
    """Whether a column's name suggests any role."""
    return any(_suggests(name, hint) for hints in HINTS.values() for hint in hints)


def find_list_mark(cells: Sequence[str]) -> str:
    """Return what separates several ids in most cells of a column, nothing if each holds one."""
    filled = [cell.strip() for cell in cells if cell.strip()]
    for mark in LIST_MARKS:
        lists = [cell.split(mark) for cell in filled if mark in cell]
        parts = [part.strip() for cell in lists for part in cell]
        are_ids = not any(" " in part for part in parts)
        if mark == " ":  # words have no digits
            are_ids = all(any(map(str.isdigit, part)) for part in parts)
        if lists and are_ids and len(lists) > MIN_LIST_SHARE * len(filled):
            return mark
    return ""
