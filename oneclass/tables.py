"""Read events, pairs of a user and an item with a time or weight if there is one, from what Python programs hold.

Nothing but Polars is imported: frames of other libraries are known by the modules of their types.
"""

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

POSITIONS = ("user_id", "item_id", "weight", "time")  # of the values of a tuple
WEIGHT_NAMES = ("weight", "count")  # a rating is no weight: who gave one star does not like the item a little
USUAL_COLUMNS: dict[str, str | None] = dict.fromkeys(("user", "item", "weight", "time"))


def read_events(data: Any, columns: Mapping[str, str | None] = USUAL_COLUMNS) -> pl.DataFrame:
    """Read events as a frame of `user_id`, `item_id`, and `weight` and `time` if there are such.

    Args:
        data: as in `oneclass.Interactions`, but no matrix.
        columns: the names of the columns `user`, `item`, `weight` and `time`; None for the usual ones.

    Raises:
        TypeError: the type of `data` is none of those.
        ValueError: there is no such column, no row, or ids or values that cannot be read.
        FileNotFoundError: a file does not exist.
    """
    if _is_path(data):
        frame = _read_files(data, columns)
        found = {name: name for name in frame.columns}
    else:
        frame = table if (table := read_frame(data)) is not None else _read_tuples(data)
        found = _find_columns(frame, columns)
    events = frame.select(pl.col(source).alias(target) for target, source in found.items())
    if events.is_empty():
        raise ValueError("the table of interactions has no row")
    events = events.with_columns(read_ids(events["user_id"], "users"), read_ids(events["item_id"], "items"))
    if "weight" in events.columns:
        events = events.with_columns(_check_weights(events["weight"]))
    return events.with_columns(_convert_times(events["time"])) if "time" in events.columns else events


def read_frame(data: Any) -> pl.DataFrame | None:
    """Convert a frame of Polars, pandas, Arrow or DuckDB, or a mapping of columns; None for anything else.

    Raises:
        ValueError: columns have values of several types, or different lengths.
    """
    library = type(data).__module__.partition(".")[0]
    if isinstance(data, pl.DataFrame | pl.LazyFrame):
        return data.lazy().collect()
    if library == "pandas" and hasattr(data, "columns"):
        try:
            return pl.from_pandas(data)
        except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
            raise ValueError(f"the pandas frame: {error}; give columns with values of one type") from error
    if library == "pyarrow":
        table = pl.from_arrow(data)
        return table if isinstance(table, pl.DataFrame) else None
    if library in ("duckdb", "_duckdb") and hasattr(data, "pl"):
        return data.pl()
    if not isinstance(data, Mapping):
        return None
    columns = [make_series(values, f"column {name}").alias(str(name)) for name, values in data.items()]
    if len({len(column) for column in columns}) > 1:
        lengths = ", ".join(f"{column.name} has {len(column)}" for column in columns)
        raise ValueError(f"columns of different lengths: {lengths}; give each a value for every event")
    return pl.DataFrame(columns)


def make_series(values: Any, what: str) -> pl.Series:
    """Return values as a Series.

    Raises:
        TypeError: they are no collection; the errors name `what` they are.
        ValueError: they are of several types.
    """
    if isinstance(values, pl.Series):
        return values
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise TypeError(f"{what}: {values!r} is one value; give a list")
    values = values if hasattr(values, "dtype") else list(values)
    try:
        return pl.Series(values, strict=True)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        kinds = {type(one).__name__: one for one in reversed(values) if one is not None}
        given = " and ".join(f"{one!r} ({kind})" for kind, one in reversed(kinds.items()))
        raise ValueError(f"{what}: values such as {given}; give values of one type, such as texts by str()") from error


def read_ids(values: Any, side: str) -> pl.Series:
    """Return ids as texts or whole numbers.

    Raises:
        ValueError: an id is missing, or ids are of another type or of several.
    """
    ids, what = make_series(values, f"ids of {side}"), f"ids of {side}"
    if isinstance(ids.dtype, pl.Categorical | pl.Enum):
        ids = ids.cast(pl.String)
    if missing := ids.null_count():
        raise ValueError(f"{what}: {missing} of {len(ids)} are missing, the first in row {ids.is_null().arg_max()}")
    if ids.dtype == pl.String:
        return ids
    if ids.dtype == pl.Null:  # none at all
        return ids.cast(pl.Int64)
    if not ids.dtype.is_integer():
        hint = "pandas makes floats of numbers of which some are missing" if ids.dtype.is_float() else "such as str(id)"
        raise ValueError(f"{what}: of type {ids.dtype}; give texts or whole numbers ({hint})")
    if len(ids) and int(ids.max()) >= 1 << 63:  # pyright: ignore[reportArgumentType]: whole numbers
        raise ValueError(f"{what}: {ids.max()} is above 2^63 - 1; give texts, such as str(id)")
    return ids.cast(pl.Int64)


def _is_path(data: Any) -> bool:
    if isinstance(data, str | Path):
        return True
    return isinstance(data, list | tuple) and bool(data) and all(isinstance(path, str | Path) for path in data)


def _read_files(data: str | Path | Sequence[str | Path], columns: Mapping[str, str | None]) -> pl.DataFrame:
    """Read logs as a run does, with the columns and formats of a data set without a file of its own."""
    import duckdb

    from oneclass import sql
    from oneclass.tasks.datasets import Columns, Dataset
    from oneclass.tasks.errors import InputError
    from oneclass.tasks.ingest.load import load_logs
    from oneclass.tasks.ingest.sources import scan_logs

    paths = [data] if isinstance(data, str | Path) else data
    named = {("value" if kind == "weight" else kind): (name,) for kind, name in columns.items() if name is not None}
    dataset = Dataset(name="interactions", columns=Columns(**named))
    for path in paths:
        if not Path(path).exists():
            raise FileNotFoundError(f"{path}: does not exist; give a log, a folder of logs, or (user, item) tuples")
    try:
        with tempfile.TemporaryDirectory(prefix="oneclass-read-") as scratch, duckdb.connect() as connection:
            connection.execute("set TimeZone = 'UTC'")
            connection.execute(sql.schema()[0])  # the tables of `raw`
            logs = scan_logs(paths, dataset)
            load_logs(connection, list(enumerate(logs, 1)), Path(scratch), dataset)
            # one row per event, in the order of the logs
            weight = ", value as weight" if columns["weight"] else ""
            rows = f"select user_id, item_id, occurred_at as time{weight} from raw.events order by file_id, line_number"
            events = connection.sql(rows).pl()
    except InputError as error:
        raise ValueError(str(error)) from error
    return events.drop("time") if events["time"].is_null().all() else events


def _read_tuples(data: Any) -> pl.DataFrame:
    if not isinstance(data, Iterable):
        raise TypeError(
            f"interactions: a {type(data).__name__}; give a frame of Polars, pandas, Arrow or DuckDB, a path, "
            "(user, item) tuples, or a users x items matrix"
        )
    rows = list(data)
    widths = {len(row) if isinstance(row, tuple | list) else 0 for row in rows}
    if len(widths) > 1 or not widths <= {2, 3, 4}:
        raise ValueError(
            "interactions: a list holds (user, item), (user, item, weight) or (user, item, weight, time) tuples of one "
            f"length; here is {rows[0]!r}" + (f", and lengths of {sorted(widths)}" if len(widths) > 1 else "")
        )
    names = POSITIONS[: widths.pop()] if widths else POSITIONS[:2]
    what = {"user_id": "ids of users", "item_id": "ids of items", "weight": "weights", "time": "times"}
    cells = {name: [row[position] for row in rows] for position, name in enumerate(names)}
    return pl.DataFrame([make_series(values, what[name]).alias(name) for name, values in cells.items()])


def _find_columns(frame: pl.DataFrame, columns: Mapping[str, str | None]) -> dict[str, str]:
    """Return the column of `frame` for each of the project's names: the one stated, or with a name that a run knows."""
    from oneclass.tasks.datasets.columns import KNOWN_NAMES
    from oneclass.tasks.ingest.columns import normalize_name

    found = {}
    for kind, target in zip(columns, POSITIONS, strict=True):
        stated, known = columns[kind], WEIGHT_NAMES if kind == "weight" else KNOWN_NAMES[kind]
        if stated is not None and stated not in frame.columns:
            raise ValueError(f"{kind}={stated!r}: no such column; the table has {', '.join(frame.columns)}")
        choices = [stated] if stated else [name for name in frame.columns if normalize_name(name) in known]
        if len(choices) > 1 or (not choices and kind in ("user", "item")):
            raise ValueError(
                f"{'several columns' if choices else 'no column'} of {kind}s among {', '.join(frame.columns)}; name "
                f"it, as in oneclass.Interactions(table, {kind}=...). Found without naming: {', '.join(known)}"
            )
        if choices:
            found[target] = choices[0]
    return found


def _check_weights(weights: pl.Series) -> pl.Series:
    numbers = pl.Series([None] * len(weights), dtype=pl.Float64)
    if not weights.dtype.is_nested():
        numbers = weights.cast(pl.Float64, strict=False)
    bad = ~(numbers.is_finite() & (numbers > 0)).fill_null(False)
    if bad.any():
        row = bad.arg_max() or 0
        raise ValueError(
            f"weights: {weights.to_list()[row]} in row {row} is not a positive finite number; leave out what is no like"
        )
    return numbers


def _convert_times(times: pl.Series) -> pl.Series:
    """Return times in UTC; numbers are seconds since 1970."""
    try:
        if times.dtype.is_numeric():
            return (times.cast(pl.Float64) * 1e6).cast(pl.Int64).cast(pl.Datetime("us"))
        if times.dtype == pl.String:
            return times.str.to_datetime(time_unit="us")
        if isinstance(times.dtype, pl.Datetime) and times.dtype.time_zone:
            times = times.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        if times.dtype.is_temporal() or times.dtype == pl.Null:
            return times.cast(pl.Datetime("us"))
    except pl.exceptions.PolarsError:
        pass  # the same advice for every type
    shown = times.drop_nulls().head(1).to_list()
    raise ValueError(
        f"times: of type {times.dtype}, such as {shown[0] if shown else None!r}, cannot be read; give datetimes, texts "
        "such as 2026-01-31T12:00:00, or seconds since 1970"
    )
