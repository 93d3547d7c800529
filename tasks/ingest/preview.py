"""Inspect logs before a run: a sample of each, its columns, first events and losses, and the data set's file."""

import json
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
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
from oneclass.tasks.datasets.source import Source
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest import containers, file_registry
from oneclass.tasks.ingest.column_names import UnknownColumns, guess_columns
from oneclass.tasks.ingest.load import load_logs
from oneclass.tasks.ingest.log_format import LogFormat, split_line
from oneclass.tasks.ingest.query import fetch_sample
from oneclass.tasks.ingest.sources import LogFile, SourceScanner, check_readable, expand_path
from oneclass.tasks.stores import durable, warehouse
from oneclass.tasks.stores.home import Home, escape_path
from oneclass.tasks.stores.warehouse import fetch_row

SAMPLE_BYTES = 1 << 24
SAMPLE_ROWS = 200_000
SHOWN_EVENTS = 10
MAX_KINDS = 12
"""A column called `event` or the like with more different texts is none of kinds."""
USUAL_WEIGHTS = {
    **dict.fromkeys(("return", "refund", "cancel"), -5.0),
    **dict.fromkeys(("purchase", "order", "buy", "bought", "sale", "transaction"), 5.0),
    **dict.fromkeys(("cart", "basket", "wish", "favo"), 3.0),
}
"""Parts of the names of kinds, and the weights proposed for these; others get 1."""
UNKNOWN_KIND = "unknown kind of event "
QUERY_NAME = "[source] query"


@dataclass(frozen=True)
class Preview:
    """What a sample of the logs holds, as the data set's file reads it.

    Attributes:
        layouts: (path, layout, whether only its beginning was read) of each log.
        counts: the row of `inspect/counts`.
        kinds: one row per kind of event that is declared or found: `event`, `events` and `weight`.
        funnel: the steps from lines to the likes that the filters leave.
        events: the first events.
        rejects: one row a reason: `reason`, `lines`, and the first `line` with its `line_number`.
        largest: the user and the item with the most events.
        advice: what a run would say of the rejects, if they are too many.
    """

    dataset: Dataset
    layouts: list[tuple[str, LogFormat, bool]]
    counts: dict[str, Any]
    kinds: pl.DataFrame
    funnel: list[FunnelStep]
    events: pl.DataFrame
    rejects: pl.DataFrame
    largest: pl.DataFrame
    advice: str = ""


def inspect_logs(root: Path, dataset: Dataset, sources: Sequence[str], *, write: bool) -> str:
    """Return how logs are read, and write the data set's file if `write`.

    Logs with columns of unknown names are read by what the names suggest, if that leaves no doubt and the file is to be
    written.

    Args:
        root: the folder of homes.
        sources: paths of logs; by default the query of the data set's `[source]`, else its landing folder.

    Raises:
        InputError: the logs are refused, or the file is to be written and exists.
    """
    path = root / "datasets" / f"{dataset.name}.toml"
    if write and path.exists():
        raise InputError(f"{path}: exists already. Edit it, or choose another --dataset.")
    paths = sources or [str(Home(root, dataset.name).landing)]
    try:
        if dataset.source and not sources:
            shown = preview_query(dataset, dataset.source)
        else:
            shown = preview_logs(dataset, paths)
    except InputError as error:
        guessed = _guess_dataset(dataset, error) if write else None
        if guessed is None:
            raise
        shown = preview_logs(guessed, paths)
    text = format_preview(shown)
    toml = format_toml(shown)
    if not write:
        return f"{text}\n\nThe data set's file, {path} (--write writes it):\n\n{toml}"
    durable.make_folder(path.parent)
    durable.write_text(path.with_name(f".{path.name}"), path, toml)
    return f"{text}\n\nThe data set's file, written to {path}:\n\n{toml}"


def _guess_dataset(dataset: Dataset, refusal: InputError) -> Dataset | None:
    """Return the data set with the columns that the names in refused logs leave no doubt of; None if they do."""
    if not isinstance(refusal, UnknownColumns):
        return None
    chosen, is_certain = guess_columns(refusal.names, dataset)
    if not is_certain:
        return None
    columns = {role: (chosen[role].strip(),) if role in chosen else () for role in ("user", "item", "value", "time")}
    return Dataset.model_validate({**dataset.model_dump(exclude={"columns"}), "columns": columns})


def preview_logs(dataset: Dataset, paths: Iterable[str | Path]) -> Preview:
    """Read the beginning of each log into a database in memory.

    If the data set declares no kinds of events and the logs have a column of them, the preview proposes weights.

    Raises:
        InputError: a path has no log, or a log is unreadable.
    """
    paths = list(paths)
    if not dataset.events and (weights := _propose_weights(dataset, paths)):
        dataset = _with_events(dataset, weights)
    shown = "select * exclude (file_id)" if dataset.events else "select * exclude (file_id, event)"
    with _loaded_sample(dataset, paths) as (connection, logs):
        return Preview(
            dataset,
            [(log.path, log.layout or LogFormat(""), is_cut) for log, is_cut in logs],
            warehouse.select(connection, "inspect/counts").row(0, named=True),
            _count_kinds(connection, dataset),
            _count_steps(connection, dataset),
            warehouse.query(connection, f"{shown} from raw.events order by file_id, line_number limit {SHOWN_EVENTS}"),
            warehouse.select(connection, "inspect/rejects"),
            warehouse.select(connection, "inspect/largest"),
            _explain_losses(connection, dataset, [log for log, _ in logs]),
        )


def _explain_losses(connection: duckdb.DuckDBPyConnection, dataset: Dataset, logs: Sequence[LogFile]) -> str:
    """Return the refusal of the log with most rejects if they are more than the data set allows."""
    most = connection.execute(
        "select file_id, count(distinct line_number), min(line_number), arg_min(reason, line_number) from raw.rejects "
        "group by file_id order by 2 desc, 1 limit 1"
    ).fetchone()
    if most is None:
        return ""
    file_id, rejects, line, reason = most
    log = logs[file_id - 1]
    query = "select count(*) from raw.events where file_id = ?"
    lines = log.text.lines if log.text else rejects + fetch_row(connection, query, [file_id])[0]
    if rejects <= dataset.max_reject_share * lines:
        return ""
    share = dataset.max_reject_share
    return file_registry.explain_rejects(log, rejects=rejects, lines=lines, line=line, reason=reason, share=share)


@contextmanager
def _loaded_sample(
    dataset: Dataset, paths: Sequence[str | Path]
) -> Generator[tuple[duckdb.DuckDBPyConnection, list[tuple[LogFile, bool]]]]:
    """Load the beginning of each log; yields the database, and (log, whether only its beginning was read) of each."""
    with tempfile.TemporaryDirectory(prefix="oneclass-inspect-") as folder, duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'")
        connection.execute(sql.schema()[0])  # the tables of `raw`
        logs = list(_sample_logs(dataset, paths, Path(folder)))
        (scratch := Path(folder) / "scratch").mkdir()
        load_logs(connection, [(number, log) for number, (log, _) in enumerate(logs, 1)], scratch, dataset)
        yield connection, logs


def _with_events(dataset: Dataset, weights: dict[str, float]) -> Dataset:
    return Dataset.model_validate({**dataset.model_dump(), "events": weights})


def _propose_weights(dataset: Dataset, paths: Sequence[str | Path]) -> dict[str, float]:
    """Return a weight for each kind in a column with a usual name for kinds; none if there is no such column."""
    if dataset.layout != "recognised" or dataset.fields:
        return {}
    try:
        # No line is of this kind, so that the reasons of the rejects list all kinds.
        with _loaded_sample(_with_events(dataset, {"": 1.0}), paths) as (connection, _):
            reasons = warehouse.select(connection, "inspect/rejects")["reason"].to_list()
    except InputError:
        return {}
    kinds = [reason.removeprefix(UNKNOWN_KIND) for reason in reasons if reason.startswith(UNKNOWN_KIND)]
    if len(kinds) > MAX_KINDS or all(kind.replace(".", "").isdigit() for kind in kinds):
        return {}
    return {kind: next((w for part, w in USUAL_WEIGHTS.items() if part in kind.lower()), 1.0) for kind in kinds}


def _count_kinds(connection: duckdb.DuckDBPyConnection, dataset: Dataset) -> pl.DataFrame:
    counts = dict(connection.execute("select event, count(*) from raw.events group by event").fetchall())
    rows = [(kind, counts.get(kind, 0), weight) for kind, weight in dataset.events.items()]
    return pl.DataFrame(rows, schema={"event": pl.String, "events": pl.Int64, "weight": pl.Float64}, orient="row")


def preview_query(dataset: Dataset, source: Source) -> Preview:
    """Read the first rows of a data set's query, as `preview_logs` reads logs."""
    with tempfile.TemporaryDirectory(prefix="oneclass-inspect-") as folder:
        rows = Path(folder) / "query"
        fetch_sample(dataset, source, rows, SAMPLE_ROWS)
        try:
            shown = preview_logs(dataset, [rows])
        except InputError as error:
            error.args = (str(error).replace(str(rows), QUERY_NAME),)
            raise
    return replace(shown, layouts=[(QUERY_NAME, *layout[1:]) for layout in shown.layouts])


def format_preview(preview: Preview) -> str:
    """Format a preview for a terminal."""
    counts = preview.counts
    sections = ["\n".join(_describe_layout(*log) for log in preview.layouts)]
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
        if len(preview.kinds):
            sections.append(f"Kinds of events, and what an event of each adds:\n{preview.kinds}")
        if len(preview.rejects):
            sections.append(f"Rejected lines, by reason:\n{preview.rejects}")
        sections += [f"A run would refuse this: {preview.advice}"] if preview.advice else []
        sections += _describe_largest(preview)
    return "\n\n".join(sections)


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


def format_toml(preview: Preview) -> str:
    """Format the data set's file with what was detected filled in."""
    layout, dataset = preview.layouts[0][1], preview.dataset
    lines = [f"title = {json.dumps(dataset.title, ensure_ascii=False)}"]
    for name in ("encoding", "decimal", "timezone", "item_separator"):
        value = getattr(dataset, name)
        if value and value != "UTC":
            lines.append(f"{name} = {json.dumps(value)}")
    if dataset.half_life_days is not None:
        lines.append(f"half_life_days = {dataset.half_life_days:g}")
    if layout.time_formats:
        lines.append(f"time_format = {json.dumps(layout.time_formats[-1])}")
    if layout.statement == "delimited" and not layout.header:
        roles = {int(position): role for role, position in layout.columns}
        fields = [roles.get(position, "-") for position in range(1, layout.fields + 1)]
        lines += [f"delimiter = {json.dumps(layout.delimiter)}", f"fields = {json.dumps(fields)}"]
    if dataset.layout != "recognised":
        lines.append(f"layout = {json.dumps(dataset.layout)}")
    if names := column_names(layout):
        lines += [
            "",
            "[columns]",
            *(f"{role} = [{json.dumps(name, ensure_ascii=False)}]" for role, name in names.items()),
        ]
        lines += [f"{role} = []" for role in ("value", "time") if role not in names]
    if dataset.events:
        lines += ["", "[events]    # what an event of each kind adds to its pair; 0 leaves the kind out"]
        lines += [f"{json.dumps(kind, ensure_ascii=False)} = {weight:g}" for kind, weight in dataset.events.items()]
    lines += [
        "",
        "[binarize]",
        f"threshold = {dataset.binarize.get('threshold', 1.0):g}    # an event is a like from this value on",
    ]
    return "\n".join(lines) + "\n"


def column_names(layout: LogFormat) -> dict[str, str]:
    """Return the name of each role's column, if the log names its columns."""
    if layout.statement == "parquet":
        return {role: str(name) for role, name in layout.columns}
    if layout.statement == "json":
        return {role: str(path)[1:].replace("[*]", "").replace('"', "").lstrip(".") for role, path in layout.columns}
    if not layout.header:
        return {}
    names = split_line(layout.header, layout)
    shift = 1 + layout.fields - len(names)  # R leaves out the name of the first column
    return {role: names[int(position) - shift].strip() for role, position in layout.columns}


def _sample_logs(dataset: Dataset, paths: Iterable[str | Path], folder: Path) -> Iterator[tuple[LogFile, bool]]:
    """Yield (log, whether only its beginning is in the sample) of every log."""
    locations = [location for path in paths for location in expand_path(Path(path), dataset)]
    for number, location in enumerate(locations):
        sample = folder / f"{number}"
        with check_readable(location):
            is_cut = _write_sample(location, sample)
        try:
            scanner = SourceScanner(dataset)
            logs = scanner.scan([sample if is_cut else location])
        except InputError as error:
            error.args = (str(error).replace(str(sample), str(location)),)
            raise
        for log in logs:
            yield replace(log, path=log.path.replace(str(sample), str(location))), is_cut


def _write_sample(path: Path, sample: Path) -> bool:
    """Write the beginning of a log that is longer than a sample, and return whether it is."""
    if path.stat().st_size <= SAMPLE_BYTES:
        return False
    container = containers.detect_container(path)
    if container == "parquet":
        with duckdb.connect() as connection:
            rows = connection.read_parquet(escape_path(path), hive_partitioning=False).limit(SAMPLE_ROWS)
            rows.write_parquet(str(sample))
        return True
    with containers.open_text(path, container) as stream:
        head = stream.read(SAMPLE_BYTES)
        if is_cut := bool(stream.read(1)):
            sample.write_bytes(head[: head.rfind(b"\n") + 1] or head)
    return is_cut


def _describe_layout(path: str, layout: LogFormat, is_cut: bool) -> str:
    kinds = {
        "netflix": "Netflix Prize: ratings under MOVIE: headers",
        "json": "JSON lines",
        "parquet": "Parquet",
        "adjacency": "adjacency list: a user and the items",
        "counted_adjacency": "adjacency list: a count and the items, line n is user n",
        "delimited": f"delimited by {layout.delimiter!r}, {'with' if layout.header else 'without'} a header",
    }
    lines = [f"{path}: {kinds[layout.statement]}" + ("; the beginning of it is read here" if is_cut else "")]
    names = column_names(layout)
    for role, position in layout.columns:
        lines.append(f"    {role:<6} <- {names.get(role, f'field {position}')}")
    lines += [f"    left out: {line.strip()[:80]}" for line in layout.skipped]
    lines += [f"    {doubt}" for doubt in layout.doubts]
    if layout.time_formats:
        lines.append(f"    times as {layout.time_formats[-1]}")
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
