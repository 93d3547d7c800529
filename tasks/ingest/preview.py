"""Inspect logs before a run: their columns, first events and losses, and the data set's file."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import toml
from pydantic import ValidationError

from oneclass.data_contracts import contracts
from oneclass.tasks.binarize import aggregate
from oneclass.tasks.binarize.aggregate import FunnelStep
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import rewrite_interactions
from oneclass.tasks.datasets import Dataset, read_declaration
from oneclass.tasks.datasets.sections import ROLES
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.columns import UnknownColumns
from oneclass.tasks.ingest.layouts import Layout
from oneclass.tasks.ingest.load import load_logs
from oneclass.tasks.ingest.query import fetch_rows
from oneclass.tasks.ingest.sources import scan_logs
from oneclass.tasks.stores import durable, warehouse
from oneclass.tasks.stores.home import Home

MAX_RECORDS = 200_000  # of each log that are read


def inspect_logs(root: Path, dataset: Dataset, sources: Sequence[str], *, write: bool) -> str:
    """Return how logs are read, by default those of `[source]` or the landing folder; maybe write the data set's file.

    Raises:
        InputError: the logs are refused; where their columns leave a doubt, with a table of the columns.
    """
    with tempfile.TemporaryDirectory(prefix="oneclass-inspect-") as name:
        paths = [*map(Path, sources)] or [Home(root, dataset.name).landing]
        if dataset.source and not sources:
            paths = [Path(name) / "query.parquet"]
            fetch_rows(Home(Path(name), "query"), dataset, dataset.source, paths[0], limit=MAX_RECORDS)
        kinds: tuple[str, ...] = ()
        try:
            shown, layout = _describe_logs(dataset, paths, Path(name))
        except InputError as error:
            if not (isinstance(error.__cause__, UnknownColumns) and error.__cause__.kinds):
                raise
            alike = dataset.model_copy(update={"columns": dataset.columns.model_copy(update={"event": ()})})
            shown, layout = _describe_logs(alike, paths, Path(name))
            shown, kinds = f"{shown}\n\nA run would refuse this: {error}", error.__cause__.kinds
    declared = format_toml({"title": dataset.title, **read_declaration(dataset.name, root)[1]}, layout, kinds)
    if not write:
        return f"{shown}\n\nThe data set's file, which --write {dataset.name} writes:\n\n{declared}"
    path = root / "datasets" / f"{dataset.name}.toml"
    durable.make_folder(path.parent)
    durable.write_text(path.with_name(f".{path.name}"), path, declared)
    return f"{shown}\n\nThe data set's file, written to {path}:\n\n{declared}"


def _describe_logs(dataset: Dataset, paths: Sequence[Path], folder: Path) -> tuple[str, Layout]:
    """Describe how logs are read, and return the layout of the first."""
    with duckdb.connect() as connection, pl.Config(
        tbl_rows=-1, tbl_cols=-1, tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True, fmt_str_lengths=60
    ):  # fmt: skip
        for statements in ("set TimeZone = 'UTC'", *contracts.schema()):
            connection.execute(statements)
        logs = scan_logs(paths, dataset)
        load_logs(connection, enumerate(logs, 1), folder, dataset, limit=MAX_RECORDS)
        layouts = [log.layout for log in logs if log.layout]
        sections = ["\n".join(_describe_layout(log.path, layout) for log, layout in zip(logs, layouts, strict=True))]
        counts = warehouse.select(connection, "ingest/sizes").row(0, named=True)
        if counts["events"] + counts["rejects"] >= MAX_RECORDS:
            sections.append(f"Of each log the first {MAX_RECORDS:,} records are read here.")
        first = warehouse.query(connection, "from raw.events order by file_id, line_number limit 10").drop("file_id")
        sections.append(f"The first events, as they are read:\n{first if dataset.events else first.drop('event')}")
        if counts["events"]:
            span = f"from {counts['first_at']} to {counts['last_at']} (UTC)" if counts["first_at"] else "without times"
            sections.append(
                f"{counts['events']:,} events of {counts['users']:,} users and {counts['items']:,} items in "
                f"{counts['pairs']:,} pairs, {span}; values from {counts['lowest']} to {counts['highest']}"
            )
        try:
            steps = aggregate.format_steps(count_steps(connection, dataset))
        except InputError as error:
            steps = [f"A run would refuse this: {error}"]
        sections.append("\n".join(["From lines to likes:", *steps]))
        if dataset.events:
            kinds = "select event, count(*) as events from raw.events group by event order by all"
            sections.append(f"Kinds of events:\n{warehouse.query(connection, kinds)}")
        if len(rejects := warehouse.select(connection, "ingest/reject_reasons")):
            sections.append(f"Rejected lines, by reason:\n{rejects}")
        return "\n\n".join(sections), layouts[0]


def count_steps(connection: duckdb.DuckDBPyConnection, dataset: Dataset) -> list[FunnelStep]:
    """Count what the settings of binarize leave of the events in `raw`, by the stage's own code.

    Raises:
        InputError: the settings are wrong, or leave no like.
    """
    try:
        settings = BinarizeSettings(**dataset.binarize_settings)
    except ValidationError as error:
        raise InputError(f"data set {dataset.name}, [binarize]: {error.errors()[0]['msg']}.") from error
    return [
        *aggregate.count_event_steps(connection, settings),
        rewrite_interactions(connection, settings, None, None)[1],
    ]


def format_toml(declared: Mapping[str, Any], layout: Layout, kinds: Sequence[str]) -> str:
    """Format a data set's file of what it declares, the columns of a log, and kinds of events to be weighted."""
    given = {**declared, "binarize": {"threshold": 1.0, **declared.get("binarize", {})}}
    if len(layout.time_formats) == 1:
        given["time_format"] = layout.time_formats[0]
    columns = {role: [name] for role, name in _name_columns(layout).items()}
    if clock := columns.pop("clock", None):
        columns["time"] += clock
    if columns:
        given["columns"] = {role: columns.get(role, []) for role in ROLES if role != "event" or role in columns}
    comment = "\n# [events]    # what an event of each kind adds; 0 leaves the kind out\n"
    weights = "".join(f"# {json.dumps(kind, ensure_ascii=False)} = WEIGHT\n" for kind in kinds)
    return toml.dumps(given) + (comment + weights if kinds else "")


def _name_columns(layout: Layout) -> dict[str, str]:
    """Return the name of each role's column, or its number; of public formats that are read by their form nothing."""
    if layout.is_by_form:
        return {}
    shift = layout.fields - len(layout.names)  # R leaves out the name of the first column
    is_named = layout.form == "delimited" and layout.names
    return {role: layout.names[int(at) - 1 - shift] if is_named else str(at) for role, at in layout.columns}


def _describe_layout(path: str, layout: Layout) -> str:
    form = layout.form.replace("_", " ")
    if layout.form == "delimited":
        form = f"delimited by {layout.delimiter!r}, {'with' if layout.names else 'without'} a header"
    named = _name_columns(layout) or {role: f"field {at}" for role, at in layout.columns}
    times = [f"times as {layout.time_formats[0]}"] if layout.time_formats else []
    columns = [f"{role:<6} <- {name}" for role, name in named.items()]
    return "\n    ".join([f"{path}: {form}", *columns, *layout.doubts, *times])
