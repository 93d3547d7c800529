"""Load logs into `raw.events`, `raw.places` and `raw.rejects` in batches, by DuckDB in set-based SQL.

A batch is first read as text, one row per line, which keeps every line, damaged or blank, and its number. Then one
statement per format parses lines into events and rejects, in parallel.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from oneclass import sql
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.ingest import containers, statements
from oneclass.tasks.ingest.log_format import LogFormat
from oneclass.tasks.ingest.scan import changed_file_message, normalize_text
from oneclass.tasks.ingest.sources import LogFile
from oneclass.tasks.stores.home import escape_path
from oneclass.tasks.stores.warehouse import fetch_row

BATCH_BYTES = 1 << 30
MAX_LINE_BYTES, READ_BUFFER_BYTES = 2_000_000, 32_000_000
"""DuckDB's defaults for the longest line and its buffer; both are raised for a log with longer lines."""


@dataclass(frozen=True)
class PreparedFile:
    """A log as DuckDB reads it: the file itself, or an unpacked or normalised copy."""

    file_id: int
    log: LogFile
    path: Path
    gzipped: bool


Batch = list[tuple[int, LogFile]]


def load_logs(
    connection: duckdb.DuckDBPyConnection,
    files: Sequence[tuple[int, LogFile]],
    scratch: Path,
    dataset: Dataset,
    report_progress: Callable[[list[Batch], str, Callable[[Batch], float]], Iterable[Batch]] | None = None,
) -> None:
    """Load logs into `raw.events`, `raw.places` and `raw.rejects`, inside the connection's open transaction.

    Args:
        files: (file_id, log) of each.
        scratch: an empty folder for copies, each removed after it is read.
        dataset: its bounds decide which values are rejected.
        report_progress: yields the batches, given a description and each batch's weight.

    Raises:
        OneclassError: a log changed after it was scanned.
    """
    description = f"reading {len(files):,} logs, {sum(log.size for _, log in files) / 1e6:,.0f} MB"
    batches = list(_iterate_batches(files))
    for batch in report_progress(batches, description, _batch_bytes) if report_progress else batches:
        prepared = _prepare_batch(batch, scratch)
        try:
            _load_batch(connection, prepared, dataset)
        except duckdb.OutOfMemoryException as error:
            raise OneclassError(_explain_load_memory(batch, error)) from error
        for file in prepared:
            if file.path != file.log.location:
                file.path.unlink()
        _check_unchanged(batch)


def _load_batch(connection: duckdb.DuckDBPyConnection, prepared: Sequence[PreparedFile], dataset: Dataset) -> None:
    layout = prepared[0].log.layout
    assert layout is not None  # a log that is loaded was scanned
    bounds = statements.event_bounds(dataset)
    if layout.statement != "parquet":
        _load_text(connection, layout, prepared, dataset, bounds)
        return
    for file in prepared:
        parsed = statements.parse_parquet(file.path, file.file_id, layout, dataset, bounds)
        _insert_events(connection, parsed, dataset)
        _insert_rejects(connection, parsed)


def _check_unchanged(batch: Sequence[tuple[int, LogFile]]) -> None:
    for location, signature in {log.location: log.signature for _, log in batch}.items():
        if not signature.matches(location):
            raise OneclassError(changed_file_message(location))


def _batch_bytes(batch: Batch) -> float:
    return sum(log.size for _, log in batch)


def _iterate_batches(files: Sequence[tuple[int, LogFile]]) -> Iterator[list[tuple[int, LogFile]]]:
    """Yield batches of neighbouring files that one statement can read together, about a gigabyte each."""
    batch: list[tuple[int, LogFile]] = []
    size = 0
    for file_id, log in files:
        if batch and (_batch_key(log) != _batch_key(batch[0][1]) or size + log.size > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append((file_id, log))
        size += log.size
    yield from [batch] if batch else []


def _batch_key(log: LogFile) -> tuple[Any, ...]:
    damaged = log.text is not None and not log.text_scan.utf8
    return log.layout, damaged, log.container, log.encoding, log.location if log.member else None


def _prepare_batch(batch: Sequence[tuple[int, LogFile]], scratch: Path) -> list[PreparedFile]:
    if batch[0][1].member:
        return _unpack_batch(batch, scratch)
    prepared = []
    for file_id, log in batch:
        if log.text is None or _is_read_directly(log):
            prepared.append(PreparedFile(file_id, log, log.location, log.container == "gzip"))
            continue
        copy = scratch / f"{file_id}.txt"
        with containers.open_text(log.location, log.container, log.encoding) as stream:
            normalize_text(stream, str(copy))
        prepared.append(PreparedFile(file_id, log, copy, gzipped=False))
    return prepared


def _is_read_directly(log: LogFile) -> bool:
    """Whether DuckDB reads the file itself: UTF-8 with uniform line ends, plain or in a gzip without padding."""
    text = log.text_scan
    is_plain = text.size == log.size if not log.container else log.container == "gzip" and not _has_gzip_padding(log)
    return is_plain and not log.encoding and text.utf8 and text.uniform_line_ends


def _has_gzip_padding(log: LogFile) -> bool:
    """Whether a gzip does not end with its text's size, as one padded with zeros does, which DuckDB rejects.

    A gzip of several members does not end so either, and is unpacked without need.
    """
    with open(log.location, "rb") as stream:
        stream.seek(-4, os.SEEK_END)
        return int.from_bytes(stream.read(4), "little") != log.text_scan.size % 2**32


def _unpack_batch(batch: Sequence[tuple[int, LogFile]], scratch: Path) -> list[PreparedFile]:
    wanted = {log.member: (file_id, log) for file_id, log in batch}
    archive, container = batch[0][1].location, batch[0][1].container
    prepared = {}
    with containers.open_text(archive, container) as stream:
        for name, member in containers.iterate_logs(stream):
            if name not in wanted:
                continue
            file_id, log = wanted[name]
            copy = scratch / f"{file_id}.txt"
            if log.text_scan.utf8 and log.text_scan.uniform_line_ends:
                with open(copy, "wb") as target:
                    shutil.copyfileobj(member, target)
            else:
                normalize_text(member, str(copy))
            prepared[name] = PreparedFile(file_id, log, copy, gzipped=False)  # the last member of a name counts
    return list(prepared.values())


def _load_text(
    connection: duckdb.DuckDBPyConnection,
    layout: LogFormat,
    prepared: Sequence[PreparedFile],
    dataset: Dataset,
    bounds: Mapping[str, str],
) -> None:
    filled = _create_line_view(connection, prepared)
    is_utf8 = prepared[0].log.text_scan.utf8
    damaged = "false" if is_utf8 else "contains(line, chr(65533))"
    without_event = layout.header_lines * len(prepared)
    if layout.statement == "netflix":
        connection.execute(sql.statement("ingest/headers"))
        headers, readable = fetch_row(connection, "select count(*), count(movie) from ingest_headers")
        parsed = sql.statement("ingest/netflix", block=str(max(1, filled // headers)), damaged=damaged, **bounds)
        without_event = readable
    elif layout.statement in ("delimited", "json"):
        quoted_fields = _quoted_field_condition(connection, layout)
        parsed = statements.parse_text(layout, dataset, is_utf8, bounds, quoted_fields)
    else:
        parsed = statements.parse_adjacency(layout, is_utf8, bounds)
        connection.execute(sql.statement("ingest/places", parsed=parsed))
    events = _insert_events(connection, parsed, dataset)
    one_each = layout.statement in ("netflix", "delimited") and not layout.item_lists
    if not one_each or events < filled - without_event:
        _insert_rejects(connection, parsed)
    connection.execute("drop table ingest_text")


def _insert_events(connection: duckdb.DuckDBPyConnection, parsed: str, dataset: Dataset) -> int:
    """Insert the lines that could be read, and return their number."""
    kind = ", event" if dataset.events else ""
    return fetch_row(connection, sql.statement("ingest/events", parsed=parsed, kind=kind))[0]


def _insert_rejects(connection: duckdb.DuckDBPyConnection, parsed: str) -> None:
    connection.execute(sql.statement("ingest/rejects", parsed=parsed))


def _create_line_view(connection: duckdb.DuckDBPyConnection, prepared: Sequence[PreparedFile]) -> int:
    """Create the temporary view ingest_lines of a batch, and return the number of its nonblank lines."""
    scans = [file.log.text_scan for file in prepared]
    longest = max(MAX_LINE_BYTES, *(scan.max_line_bytes + 2 for scan in scans))
    connection.execute(
        sql.statement("ingest/text"),
        {
            "paths": [escape_path(file.path) for file in prepared],
            "compression": "gzip" if prepared[0].gzipped else "none",
            "longest": longest,
            "buffer": max(READ_BUFFER_BYTES, 2 * longest),
        },
    )
    files = {"file_ids": [file.file_id for file in prepared], "lines": [scan.lines for scan in scans]}
    connection.execute(sql.statement("ingest/files"), files)
    rows, filled, first, last = fetch_row(
        connection, "select count(*), count(line), min(rowid), max(rowid) from ingest_text"
    )
    if not sum(files["lines"]) == rows == last - first + 1:
        raise OneclassError(
            f"{prepared[0].log.path} and {len(prepared) - 1} more: DuckDB read {rows} lines, but the files hold "
            f"{sum(files['lines'])}. They may have been written to while they were read: run again when they are "
            "complete."
        )
    connection.execute(sql.statement("ingest/lines", first_row=str(first)))
    return filled


def _quoted_field_condition(connection: duckdb.DuckDBPyConnection, layout: LogFormat) -> str:
    """Return the condition that a line is part of a quoted field of several lines."""
    if not layout.is_quoted:
        return "false"
    connection.execute(statements.find_multiline_quotes(layout))
    connection.execute(sql.statement("ingest/spoilt"))
    (lines,) = fetch_row(connection, "select count(*) from ingest_spoilt")
    return "(file_id, line_number) in (select (file_id, line_number) from ingest_spoilt)" if lines else "false"


def _explain_load_memory(batch: Sequence[tuple[int, LogFile]], error: duckdb.Error) -> str:
    longest = max((log.text_scan.max_line_bytes for _, log in batch if log.text), default=0)
    more = f" and {len(batch) - 1} more" if len(batch) > 1 else ""
    line = f" Their longest line has up to {longest:,} bytes." if longest else ""
    return (
        f"{batch[0][1].path}{more}: cannot be read in the memory that the run may take ({str(error).splitlines()[0]})."
        f"{line} Give the log in smaller files, or run where more memory is free."
    )
