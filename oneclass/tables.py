"""Read events, pairs of a user and an item with a time or weight if there is one, from what Python programs hold."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

POSITIONS = ("user_id", "item_id", "weight", "time")  # of the values of a tuple
USUAL_COLUMNS: dict[str, str | None] = dict.fromkeys(("user", "item", "weight", "time"))
WEIGHT_NAMES = ("weight", "count")  # a rating is no weight: who gave one star does not like the item a little


def read_events(data: Any, columns: Mapping[str, str | None] = USUAL_COLUMNS) -> pl.DataFrame:
    """Read events as a frame of `user_id`, `item_id`, and `weight` and `time` if there are such.

    Args:
        data: as in `oneclass.Interactions`, but no matrix.
        columns: the names of the columns `user`, `item`, `weight` and `time`; None for the usual ones.

    Raises:
        TypeError: the type of `data` is none of those.
        ValueError: there is no such column, no row, or ids or values that cannot be read.
    """
    frame = table if (table := read_frame(data)) is not None else _read_tuples(data)
    found = _find_columns(frame, columns)
    events = frame.select(pl.col(source).alias(target) for target, source in found.items())
    if events.is_empty():
        raise ValueError("the table of interactions has no row")
    ids = [read_ids(events[f"{side}_id"], side) for side in ("user", "item")]
    others = {"weight": _check_weights, "time": _convert_times}
    return events.with_columns(*ids, *(read(events[name]) for name, read in others.items() if name in events.columns))


def read_frame(data: Any) -> pl.DataFrame | None:
    """Convert a frame of Polars, pandas, Arrow or DuckDB, or a mapping of columns; None for anything else.

    Raises:
        ValueError: columns have values of several types, or different lengths.
    """
    if isinstance(data, pl.LazyFrame):
        return data.collect()
    if not isinstance(data, Mapping) and not hasattr(data, "__arrow_c_stream__"):
        return None
    try:
        return pl.DataFrame(data)
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        said = " ".join(str(error).partition("Hint:")[0].split())
        raise ValueError(
            f"{said}; give columns of one length with values of one type, such as texts by str()"
        ) from error


def read_ids(values: Any, side: str) -> pl.Series:
    """Return the ids of a side, `user` or `item`, as texts or whole numbers, named `<side>_id`.

    Raises:
        ValueError: an id is missing, or ids are of another type or of several.
    """
    what = f"ids of {side}s"
    if isinstance(values, Iterable) and not hasattr(values, "dtype"):
        values = values if isinstance(values, str) else list(values)
    ids = pl.DataFrame(read_frame({what: values})).to_series().alias(f"{side}_id")
    if isinstance(ids.dtype, pl.Categorical | pl.Enum):
        ids = ids.cast(pl.String)
    if missing := ids.null_count():
        raise ValueError(f"{what}: {missing} of {len(ids)} are missing, the first in row {ids.is_null().arg_max()}")
    if ids.dtype == pl.String:
        return ids
    if not (ids.dtype.is_integer() or ids.dtype == pl.Null):
        hint = "pandas makes floats of numbers of which some are missing" if ids.dtype.is_float() else "such as str(id)"
        raise ValueError(f"{what}: of type {ids.dtype}; give texts or whole numbers ({hint})")
    if (numbers := ids.cast(pl.Int64, strict=False)).null_count():
        raise ValueError(f"{what}: {ids.max()} is above 2^63 - 1; give texts, such as str(id)")
    return numbers


def _read_tuples(data: Any) -> pl.DataFrame:
    if isinstance(data, str | Path) or not isinstance(data, Iterable):
        raise TypeError(
            f"interactions: a {type(data).__name__}; give a frame of Polars, pandas, Arrow or DuckDB, such as of "
            "polars.read_csv(path), (user, item) tuples, or a users x items matrix"
        )
    rows = list(data)
    widths = {len(row) if isinstance(row, tuple | list) else 0 for row in rows} or {2}
    if len(widths) > 1 or not widths <= {2, 3, 4}:
        raise ValueError(
            "interactions: a list holds (user, item), (user, item, weight) or (user, item, weight, time) tuples of one "
            f"length; here is {rows[0]!r}, and the lengths are {sorted(widths)}"
        )
    names = POSITIONS[: widths.pop()]
    return pl.DataFrame(read_frame({name: [row[position] for row in rows] for position, name in enumerate(names)}))


def _find_columns(frame: pl.DataFrame, columns: Mapping[str, str | None]) -> dict[str, str]:
    """Return the column of `frame` for each of the project's names: the one stated, or with a name that a run knows."""
    from oneclass.tasks.datasets.sections import KNOWN_NAMES
    from oneclass.tasks.ingest.columns import normalize_name

    found = {}
    for kind, target in zip(columns, POSITIONS, strict=True):
        stated, known = columns[kind], WEIGHT_NAMES if kind == "weight" else KNOWN_NAMES[kind]
        choices = [name for name in frame.columns if (name == stated if stated else normalize_name(name) in known)]
        if len(choices) > 1 or (not choices and (stated or kind in ("user", "item"))):
            what = f"named {stated}" if stated else f"of {kind}s"
            what = f"named {stated}" if stated else f"of {kind}s"
            raise ValueError(
                f"{'several columns' if choices else 'no column'} {what} among {', '.join(frame.columns)}; name "
                f"it, as in oneclass.Interactions(table, {kind}=...). Found without naming: {', '.join(known)}"
            )
        if choices:
            found[target] = choices[0]
    return found


def _check_weights(weights: pl.Series) -> pl.Series:
    numbers = weights.cast(pl.Float64, strict=False)
    bad = ~(numbers.is_finite() & (numbers > 0)).fill_null(False)
    if bad.any():
        row = bad.arg_max()
        raise ValueError(
            f"weights: {weights.to_list()[row or 0]} in row {row} is not a positive finite number; leave out what is "
            "no like"
        )
    return numbers


def _convert_times(times: pl.Series) -> pl.Series:
    """Return times in UTC; numbers are seconds since 1970."""
    try:
        if times.dtype.is_numeric():
            times = (times.cast(pl.Float64) * 1e6).cast(pl.Int64)
        elif times.dtype == pl.String:
            times = times.str.to_datetime(time_unit="us")
        return times.cast(pl.Datetime("us"))
    except pl.exceptions.PolarsError as error:
        raise ValueError(
            f"times: of type {times.dtype}, such as {times.drop_nulls().head(1).to_list()}, cannot be read; give "
            "datetimes, texts such as 2026-01-31T12:00:00, or seconds since 1970"
        ) from error
