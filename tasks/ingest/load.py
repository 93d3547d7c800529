"""Logs into `raw.events` and `raw.rejects`, a batch at a time, by DuckDB in set-based SQL.

A batch is read as text first, one row a line: that alone keeps every line, damaged or blank, and its number.
Then one statement a format turns lines into events and rejects, in parallel, each line with its own outcome.
"""

import gzip
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

import sql
from tasks.datasets import Dataset
from tasks.errors import OneclassError
from tasks.ingest import archives
from tasks.ingest.layouts import Layout
from tasks.ingest.sources import LogFile
from tasks.ingest.stamps import changed
from tasks.ingest.survey import rewrite
from tasks.orchestration import progress

BATCH_BYTES = 1 << 30
LINE_BYTES, BUFFER_BYTES = 2_000_000, 32_000_000
"""DuckDB's defaults for the longest line and for its buffer, in bytes; both are raised for a log with longer lines."""


@dataclass(frozen=True)
class Ready:
    """A log as DuckDB will read it: the file itself, or a copy that was unpacked or mended."""

    file_id: int
    log: LogFile
    path: Path
    gzipped: bool


def load(
    connection: duckdb.DuckDBPyConnection, files: Sequence[tuple[int, LogFile]], scratch: Path, dataset: Dataset
) -> None:
    """Read logs into `raw.events` and `raw.rejects`, inside the connection's open transaction.

    Args:
        files: (file_id, log) of each.
        scratch: an empty folder for copies; each is removed once it has been read.
        dataset: whose bounds of values decide what is no event.

    Raises:
        OneclassError: a log changed since it was looked through.
    """
    bounds = _bounds(dataset)
    what = f"reading {len(files):,} logs, {sum(log.size for _, log in files) / 1e6:,.0f} MB"
    for batch in progress.over(_batches(files), what, lambda batch: sum(log.size for _, log in batch)):
        ready = _prepare(batch, scratch)
        layout = batch[0][1].layout
        if layout.statement == "parquet":
            for file in ready:
                _insert(connection, _parquet(file, layout, bounds), with_rejects=True)
        else:
            _load_text(connection, layout, ready, bounds)
        for file in ready:
            if file.path != file.log.location:
                file.path.unlink()
        _require_unchanged(batch)


def _require_unchanged(batch: Sequence[tuple[int, LogFile]]) -> None:
    for location, stamp in {log.location: log.stamp for _, log in batch}.items():
        if not stamp.holds(location):
            raise OneclassError(changed(location))


def _batches(files: Sequence[tuple[int, LogFile]]) -> Iterator[list[tuple[int, LogFile]]]:
    """Neighbouring files that one statement can read together, about a gigabyte at a time."""
    batch: list[tuple[int, LogFile]] = []
    size = 0
    for file_id, log in files:
        if batch and (_kind(log) != _kind(batch[0][1]) or size + log.size > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append((file_id, log))
        size += log.size
    yield from [batch] if batch else []


def _kind(log: LogFile) -> tuple:
    damaged = log.text is not None and not log.text.utf8
    return log.layout, damaged, log.gzipped, log.location if log.member else None


def _prepare(batch: Sequence[tuple[int, LogFile]], scratch: Path) -> list[Ready]:
    if batch[0][1].member:
        return _unpack(batch, scratch)
    ready = []
    for file_id, log in batch:
        if log.text is None or (log.text.utf8 and log.text.even_ends):
            ready.append(Ready(file_id, log, log.location, log.gzipped))
            continue
        copy = scratch / f"{file_id}.txt"
        with gzip.open(log.location) if log.gzipped else open(log.location, "rb") as stream:
            rewrite(stream, str(copy))
        ready.append(Ready(file_id, log, copy, gzipped=False))
    return ready


def _unpack(batch: Sequence[tuple[int, LogFile]], scratch: Path) -> list[Ready]:
    wanted = {log.member: (file_id, log) for file_id, log in batch}
    archive, gzipped = batch[0][1].location, batch[0][1].gzipped
    ready = []
    with gzip.open(archive) if gzipped else open(archive, "rb") as stream:
        for name, member in archives.logs(stream):
            if name not in wanted:
                continue
            file_id, log = wanted[name]
            copy = scratch / f"{file_id}.txt"
            if log.text.utf8 and log.text.even_ends:
                with open(copy, "wb") as target:
                    shutil.copyfileobj(member, target)
            else:
                rewrite(member, str(copy))
            ready.append(Ready(file_id, log, copy, gzipped=False))
    return ready


def _load_text(
    connection: duckdb.DuckDBPyConnection, layout: Layout, ready: Sequence[Ready], bounds: Mapping[str, str]
) -> None:
    filled = _read_lines(connection, ready)
    damaged = "contains(line, chr(65533))" if not ready[0].log.text.utf8 else "false"
    without_event = layout.header_lines * len(ready)
    if layout.statement == "netflix":
        connection.execute(sql.statement("ingest/headers"))
        headers, readable = connection.execute("select count(*), count(movie) from ingest_headers").fetchone()
        parsed = sql.statement("ingest/netflix", block=str(max(1, filled // headers)), damaged=damaged, **bounds)
        without_event = readable
    elif layout.statement == "delimited":
        parsed = _delimited(layout, damaged, bounds)
    else:
        parsed = sql.statement(f"ingest/{layout.statement}", damaged=damaged)
    events = _insert(connection, parsed)
    if layout.statement not in ("netflix", "delimited") or events < filled - without_event:
        connection.execute(sql.statement("ingest/rejects", parsed=parsed))
    connection.execute("drop table ingest_text")


def _insert(connection: duckdb.DuckDBPyConnection, parsed: str, with_rejects: bool = False) -> int:
    events = connection.execute(sql.statement("ingest/events", parsed=parsed)).fetchone()[0]
    if with_rejects:
        connection.execute(sql.statement("ingest/rejects", parsed=parsed))
    return events


def _read_lines(connection: duckdb.DuckDBPyConnection, ready: Sequence[Ready]) -> int:
    """Make the temporary view ingest_lines of a batch; the number of its lines that are not blank."""
    longest = max(LINE_BYTES, *(file.log.text.longest + 2 for file in ready))
    connection.execute(
        sql.statement("ingest/text"),
        {
            "paths": [_literal_path(file.path) for file in ready],
            "compression": "gzip" if ready[0].gzipped else "none",
            "longest": longest,
            "buffer": max(BUFFER_BYTES, 2 * longest),
        },
    )
    lines = [file.log.text.lines for file in ready]
    rows, filled, first, last = connection.execute(
        "select count(*), count(line), min(rowid), max(rowid) from ingest_text"
    ).fetchone()
    if not sum(lines) == rows == last - first + 1:
        raise OneclassError(
            f"{ready[0].log.path} and {len(ready) - 1} more: DuckDB read {rows} lines, but the files hold "
            f"{sum(lines)}. They may have been written to while they were read: run again when they are complete."
        )
    connection.execute(sql.statement("ingest/files"), {"file_ids": [file.file_id for file in ready], "lines": lines})
    connection.execute(sql.statement("ingest/lines", first_row=str(first)))
    return filled


def _delimited(layout: Layout, damaged: str, bounds: Mapping[str, str]) -> str:
    places, delimiter = dict(layout.places), _quoted(layout.delimiter)
    split = f"string_split(line, {delimiter})"
    if layout.quoted:
        escaped = re.escape(layout.delimiter)
        pattern = _quoted(f'{escaped}("(?:[^"]|"")*"|[^"{escaped}][^{escaped}]*|)')
        split = sql.statement("ingest/quoted_fields", delimiter=delimiter, pattern=pattern)
    return sql.statement(
        "ingest/delimited",
        split=split,
        header_lines=str(layout.header_lines),
        fields=str(layout.fields),
        user=f"field[{places['user']}]",
        item=f"field[{places['item']}]",
        value=f"field[{places['value']}]" if "value" in places else "'1'",
        time=f"field[{places['time']}]" if "time" in places else "null::varchar",
        has_time=str("time" in places).lower(),
        damaged=damaged,
        **bounds,
    )


def _parquet(file: Ready, layout: Layout, bounds: Mapping[str, str]) -> str:
    columns = {role: '"' + str(name).replace('"', '""') + '"' for role, name in layout.places}
    return sql.statement(
        "ingest/parquet",
        file_id=str(file.file_id),
        path=_quoted(_literal_path(file.path)),
        user=columns["user"],
        item=columns["item"],
        value=columns.get("value", "1"),
        time=columns.get("time", "null"),
        has_time=str("time" in columns).lower(),
        **bounds,
    )


def _bounds(dataset: Dataset) -> dict[str, str]:
    """Which values are out of range, as conditions in SQL, and the bounds for the reasons of rejects."""
    low, high = dataset.value_min, dataset.value_max
    return {
        "below": "false" if low is None else f"value < '{low!r}'::double",
        "above": "false" if high is None else f"value > '{high!r}'::double",
        "value_min": f"{low:g}" if low is not None else "",
        "value_max": f"{high:g}" if high is not None else "",
    }


def _literal_path(path: Path) -> str:
    """A path in which DuckDB finds no pattern."""
    return re.sub(r"([*?\[])", r"[\1]", str(path))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
