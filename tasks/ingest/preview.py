"""Inspect logs before a run: their columns, first events and losses, and the data set's file."""

import json
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
from pydantic import ValidationError

from oneclass import data_contracts, sql
from oneclass.tasks.binarize import funnel
from oneclass.tasks.binarize.funnel import FunnelStep
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.weights import create_weighted_events
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.columns import UnknownColumns
from oneclass.tasks.ingest.file_registry import explain_rejects
from oneclass.tasks.ingest.layouts import Layout
from oneclass.tasks.ingest.load import load_logs
from oneclass.tasks.ingest.query import fetch_sample
from oneclass.tasks.ingest.sources import LogFile, SourceScanner
from oneclass.tasks.stores import durable, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.warehouse import fetch_row

MAX_RECORDS = 200_000
SHOWN_EVENTS = 10


@dataclass(frozen=True)
class Preview:
    """What the logs hold, as the data set's file reads their beginnings.

    Attributes:
        counts: the row of `inspect/counts`.
        funnel: the steps from lines to the likes that the filters leave.
        events: the first events.
        kinds: one row per kind of event: `event` and `events`.
        rejects: one row a reason: `reason`, `lines`, and the first `line` with its `line_number`.
        largest: the user and the item with the most events.
        advice: what a run would say of the rejects, if they are too many, or of kinds without weights.
        unweighted: kinds of events whose weights are for a person to state.
    """

    dataset: Dataset
    logs: list[LogFile]
    counts: dict[str, Any]
    funnel: list[FunnelStep]
    events: pl.DataFrame
    kinds: pl.DataFrame
    rejects: pl.DataFrame
    largest: pl.DataFrame
    advice: str
    unweighted: tuple[str, ...] = ()


def inspect_logs(root: Path, dataset: Dataset, sources: Sequence[str], *, write: bool) -> str:
    """Return how logs are read, and write the data set's file if `write`.

    Args:
        root: the folder of homes.
        sources: paths of logs; by default the query of the data set's `[source]`, else its landing folder.

    Raises:
        InputError: the logs are refused; where their columns leave a doubt, with a table of the columns.
    """
    path = root / "datasets" / f"{dataset.name}.toml"
    try:
        with tempfile.TemporaryDirectory(prefix="oneclass-inspect-") as folder:
            paths = [*map(Path, sources)] or [Home(root, dataset.name).landing]
            if dataset.source and not sources:
                paths = [Path(folder) / "query.parquet"]
                fetch_sample(dataset, dataset.source, paths[0], MAX_RECORDS)
            shown = preview_logs(dataset, paths, Path(folder))
    except InputError as error:
        cause: BaseException | None = error
        while cause and not isinstance(cause, UnknownColumns):
            cause = cause.__cause__
        raise InputError(cause.table) if cause else error from error
    toml = format_toml(shown)
    if not write:
        return f"{format_preview(shown)}\n\nThe data set's file, which --write {dataset.name} writes:\n\n{toml}"
    durable.make_folder(path.parent)
    durable.write_text(path.with_name(f".{path.name}"), path, toml)
    return f"{format_preview(shown)}\n\nThe data set's file, written to {path}:\n\n{toml}"


def preview_logs(dataset: Dataset, paths: Sequence[Path], folder: Path) -> Preview:
    """Read the beginning of each log into a database in memory.

    Args:
        folder: for copies of the beginnings.

    Raises:
        InputError: a path has no log, or a log is unreadable.
    """
    try:
        return _preview(dataset, paths, folder)
    except InputError as error:
        if not (isinstance(error.__cause__, UnknownColumns) and error.__cause__.kinds):
            raise
        columns = dataset.columns.model_copy(update={"event": ()})
        alike = _preview(dataset.model_copy(update={"columns": columns}), paths, folder)
        return replace(alike, dataset=dataset, advice=str(error.__cause__), unweighted=error.__cause__.kinds)


def _preview(dataset: Dataset, paths: Sequence[Path], folder: Path) -> Preview:
    shown = "select * exclude (file_id)" if dataset.events else "select * exclude (file_id, event)"
    with _loaded_sample(dataset, paths, folder) as (connection, logs):
        return Preview(
            dataset,
            logs,
            warehouse.select(connection, "inspect/counts").row(0, named=True),
            _count_steps(connection, dataset),
            warehouse.query(connection, f"{shown} from raw.events order by file_id, line_number limit {SHOWN_EVENTS}"),
            warehouse.query(connection, "select event, count(*) as events from raw.events group by event order by all"),
            warehouse.select(connection, "inspect/rejects"),
            warehouse.select(connection, "inspect/largest"),
            _explain_losses(connection, dataset, logs),
        )


def _explain_losses(connection: duckdb.DuckDBPyConnection, dataset: Dataset, logs: Sequence[LogFile]) -> str:
    """Return the refusal of the log with most rejects if they are more than the data set allows."""
    most = connection.execute(
        "select file_id, count(*), min(line_number), arg_min(reason, line_number) from raw.rejects "
        "group by file_id order by 2 desc, 1 limit 1"
    ).fetchone()
    if most is None:
        return ""
    file_id, rejects, line, reason = most
    query = "select count(distinct line_number) from raw.events where file_id = ?"
    lines = rejects + fetch_row(connection, query, [file_id])[0]
    if rejects <= dataset.max_reject_share * lines:
        return ""
    share = dataset.max_reject_share
    log = logs[file_id - 1]
    return explain_rejects(log, rejects=rejects, lines=lines, line=line, reason=reason, share=share)


@contextmanager
def _loaded_sample(
    dataset: Dataset, paths: Sequence[Path], folder: Path
) -> Generator[tuple[duckdb.DuckDBPyConnection, list[LogFile]]]:
    """Load the beginning of each log into a database; yields it and the logs."""
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'")
        connection.execute(sql.schema()[0])  # the tables of `raw`
        logs = SourceScanner(dataset).scan(paths)
        load_logs(connection, list(enumerate(logs, 1)), folder, dataset, limit=MAX_RECORDS)
        yield connection, logs


def _count_steps(connection: duckdb.DuckDBPyConnection, dataset: Dataset) -> list[FunnelStep]:
    """Count what the settings of binarize would leave of the events in `raw`."""
    try:
        settings = BinarizeSettings(**dataset.binarize_settings)
    except ValidationError as error:
        raise InputError(f"data set {dataset.name}, [binarize]: {error.errors()[0]['msg']}.") from error
    steps = funnel.count_event_steps(connection, settings)
    if settings.adds_values:
        create_weighted_events(connection, settings, None, None)
        connection.execute(sql.statement("binarize/weighted_pairs"), {"threshold": settings.threshold})
        connection.execute(sql.statement("inspect/edges", likes="weighted_pairs"))
    else:
        likes = sql.statement("binarize/events_at_threshold")
        values = {"threshold": settings.threshold, "since": None, "until": None}
        connection.execute(sql.statement("inspect/edges", likes=f"({likes})"), values)
    pairs = funnel.count_pairs(settings, steps[-1].remaining, *funnel.count_edges(connection))
    filters = {name: getattr(settings, name) for name in ("min_item_edges", "min_user_edges", "k_core")}
    return [*steps, pairs, *funnel.filter_edges(connection, **filters)]


def format_preview(preview: Preview) -> str:
    """Format a preview for a terminal."""
    counts = preview.counts
    sections = ["\n".join(map(_describe_log, preview.logs))]
    if counts["events"] + counts["rejects"] >= MAX_RECORDS:
        sections.append(f"Of each log the first {MAX_RECORDS:,} records are read here.")
    with pl.Config(
        tbl_rows=-1, tbl_cols=-1, tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True, fmt_str_lengths=60
    ):
        sections.append(f"The first events, as they are read:\n{preview.events}")
        span = f", from {counts['first_at']} to {counts['last_at']} (UTC)" if counts["first_at"] else ", without times"
        sections.append(
            f"{counts['events']:,} events of {counts['users']:,} users and {counts['items']:,} items{span}; "
            f"values from {counts['lowest']} to {counts['highest']}; {counts['pairs']:,} pairs of a user and an item"
        )
        sections.append("\n".join(["From lines to likes:", *funnel.format_steps(preview.funnel)]))
        if preview.dataset.events:
            sections.append(f"Kinds of events:\n{preview.kinds}")
        if len(preview.rejects):
            sections.append(f"Rejected lines, by reason:\n{preview.rejects}")
    sections += [f"A run would refuse this: {preview.advice}"] if preview.advice else []
    return "\n\n".join([*sections, *_describe_largest(preview)])


def format_toml(preview: Preview) -> str:
    """Format the data set's file, with what was detected filled in."""
    dataset, layout = preview.dataset, preview.logs[0].layout
    assert layout is not None  # a log that was read has one
    given = dataset.model_dump(exclude_defaults=True, exclude={"name", "columns", "source"})
    given |= {"title": dataset.title, "binarize": {"threshold": 1.0, **dataset.binarize}}
    if len(layout.time_formats) == 1 and not dataset.time_format:
        given["time_format"] = layout.time_formats[0]
    columns = {role: [name] for role, name in column_names(layout).items()}
    if clock := columns.pop("clock", None):
        columns["time"] += clock
    if columns:
        given["columns"] = {"value": [], "time": []} | columns
    if dataset.source:
        given["source"] = dataset.source.model_dump(exclude_defaults=True)
    kinds = [f"# {_format_key(kind)} = WEIGHT" for kind in preview.unweighted]
    comment = ["", "# [events]    # what an event of each kind adds; 0 leaves the kind out", *kinds] if kinds else []
    return "\n".join([*_format_table(given), *comment]) + "\n"


def _format_table(table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the lines of a TOML table, values before its own tables."""
    tables = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    for key, value in table.items():
        if key not in tables and value is not None:
            yield f"{_format_key(key)} = {json.dumps(value, ensure_ascii=False)}"
    for key, value in tables.items():
        name = f"{prefix}{_format_key(key)}"
        if not value or any(not isinstance(one, Mapping) for one in value.values()):
            yield from ("", f"[{name}]")
        yield from _format_table(value, f"{name}.")


def _format_key(key: str) -> str:
    return key if key.isascii() and key.replace("_", "a").replace("-", "a").isalnum() else json.dumps(key)


def column_names(layout: Layout) -> dict[str, str]:
    """Return the name of each role's column, or its number; of public formats that are read by their form nothing."""
    if layout.is_by_form:
        return {}
    shift = layout.fields - len(layout.names)  # R leaves out the name of the first column
    is_named = layout.form == "delimited" and layout.names
    return {role: layout.names[int(at) - 1 - shift] if is_named else str(at) for role, at in layout.columns}


def _describe_log(log: LogFile) -> str:
    layout = log.layout
    assert layout is not None  # a log that was read has one
    forms = {
        "netflix": "Netflix Prize: ratings under MOVIE: headers",
        "json": "JSON lines",
        "parquet": "Parquet",
        "adjacency": "adjacency list: a user and the items",
        "counted_adjacency": "adjacency list: a count and the items, line n is user n",
        "delimited": f"delimited by {layout.delimiter!r}, {'with' if layout.names else 'without'} a header",
    }
    lines = [f"{log.path}: {forms[layout.form]}"]
    named = column_names(layout) or {role: f"field {at}" for role, at in layout.columns}
    lines += [f"    {role:<6} <- {name}" for role, name in named.items()]
    lines += [f"    {doubt}" for doubt in layout.doubts]
    lines += [f"    times as {layout.time_formats[-1]}"] if layout.time_formats else []
    return "\n".join(lines)


def _describe_largest(preview: Preview) -> Sequence[str]:
    bounds = next(one.defaults for one in data_contracts.for_stage("ingest") if one.table == "raw.events")
    events = preview.counts["events"]
    return [
        f"The {row['side']} {row['id']!r} has {row['events'] / events:.0%} of all events. If it stands for a missing "
        "id, add it to missing_ids in the data set's file."
        for row in preview.largest.iter_rows(named=True)
        if row["events"]
        > events * max(bounds["large_share"], bounds["even_shares"] / preview.counts[f"{row['side']}s"])
    ]
