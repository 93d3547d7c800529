"""Load the plain lines of text logs by a compiled parser, and leave every other line to SQL.

Both give the same events, bit by bit: `tests/tasks/ingest/test_plain_lines.py` compares them.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import BinaryIO

import duckdb
import numpy as np
import pyarrow as pa

from oneclass import sql
from oneclass.models import log_lines
from oneclass.models.log_lines import Counts, LineFormat, PlainLines, Position, Texts
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.ingest import statements
from oneclass.tasks.ingest.log_format import LogFormat

MIN_BYTES = 1 << 20
"""Of a batch: the compiled parser is loaded in a tenth of a second, in which SQL reads about as much."""
CHUNK_BYTES = MAX_LINE_BYTES = 1 << 23
PROBE_BYTES = 1 << 18
MIN_PLAIN_SHARE = 0.9
"""Of the first lines: where fewer are plain, reading the others twice costs more than it saves."""
EVENT_SCHEMA = pa.schema(
    [("user_id", pa.string()), ("item_id", pa.string()), ("value", pa.float64()), ("occurred_at", pa.timestamp("us"))]
    + [("file_id", pa.int64()), ("line_number", pa.int64())]
)
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass
class OtherLines:
    """The lines of a batch that are left to SQL, in a file of their own.

    Attributes:
        path: the file, with one line for each.
        numbers: the logs and the numbers of these lines, in pieces.
        events: how many of the lines are no readable header of the Netflix Prize's format. Headers are among the lines,
            as others may stand under them.
        lines: of each log that was read, by its id: how many it has.
    """

    path: Path
    numbers: list[pa.RecordBatch] = field(default_factory=list)
    events: int = 0
    lines: dict[int, int] = field(default_factory=dict)

    @property
    def table(self) -> pa.Table:
        """One row per line: `file_id` and `line_number`."""
        return pa.Table.from_batches(self.numbers)


def make_line_format(layout: LogFormat, dataset: Dataset) -> tuple[LineFormat, Texts] | None:
    """Return what the plain lines of a layout look like; None if the layout has none that the parser knows."""
    is_netflix = layout.statement == "netflix"
    is_known = is_netflix or (layout.statement == "delimited" and layout.delimiter != " ")
    if not is_known or layout.item_lists or layout.decimal or layout.time_formats or dataset.events:
        return None
    if layout.skipped or "clock" in dict(layout.columns):
        return None
    columns = {"user": 1, "value": 2, "time": 3} if is_netflix else dict(layout.columns)
    positions = {role: int(columns.get(role, 0)) - 1 for role in ("user", "item", "value", "time")}
    missing = [] if is_netflix else [text.encode() for text in dataset.missing_ids if text]
    form = LineFormat(
        fields=layout.fields,
        **positions,
        header_lines=layout.header_lines,
        comments=layout.comments,
        movies=is_netflix,
        numbers=not is_netflix,
        dates=is_netflix or dataset.timezone == "UTC",
        low=-np.inf if dataset.value_min is None else float(dataset.value_min),
        high=np.inf if dataset.value_max is None else float(dataset.value_max),
        latest=int(statements.latest_time(dataset).replace(tzinfo=UTC).timestamp()) * 1_000_000,
    )
    texts = Texts(
        delimiter=_to_array(layout.delimiter.encode()),
        header=_to_array(layout.header.encode()),
        missing=_to_array(b"".join(missing)),
        missing_starts=np.cumsum([0, *map(len, missing)], dtype=np.int64),
    )
    return form, texts


def are_mostly_plain(path: Path, form: LineFormat, texts: Texts) -> bool:
    """Whether the first lines of a log are plain, and no byte order mark precedes them."""
    with open(path, "rb") as stream:
        head = stream.read(PROBE_BYTES)
    text = head[: head.rfind(b"\n") + 1]
    if not text or text.startswith(BYTE_ORDER_MARK):
        return False
    position, counts = log_lines.parse_lines(
        _to_array(text), len(text), _first_position(), form, texts, log_lines.allocate_lines()
    )
    return counts.plain >= MIN_PLAIN_SHARE * (position.line - 1 - form.header_lines - counts.headers)


def insert_plain_lines(
    connection: duckdb.DuckDBPyConnection,
    files: Sequence[tuple[int, Path]],
    form: LineFormat,
    texts: Texts,
    scratch: Path,
) -> OtherLines:
    """Insert the events of plain lines into `raw.events`, and return the other lines.

    Args:
        files: (file_id, path) of each log: UTF-8 without NUL, with line ends of one kind, and without quoted fields.

    Raises:
        OSError: a log cannot be read.
    """
    others = OtherLines(scratch / "other_lines.txt")
    failures: list[OSError] = []
    with open(others.path, "wb") as stream:
        batches = _iterate_events(files, form, texts, others, stream, failures)
        connection.register("plain_events", pa.RecordBatchReader.from_batches(EVENT_SCHEMA, batches))
        connection.execute(sql.statement("ingest/plain_events"))
        connection.unregister("plain_events")
    if failures:
        raise failures[0]
    return others


def _iterate_events(
    files: Sequence[tuple[int, Path]],
    form: LineFormat,
    texts: Texts,
    others: OtherLines,
    stream: BinaryIO,
    failures: list[OSError],
) -> Iterator[pa.RecordBatch]:
    """Yield the events of plain lines, parsing one batch ahead; ends at the first failure, which DuckDB would hide."""
    pieces = _iterate_pieces(files, form, texts, others, stream)
    with ThreadPoolExecutor(1) as ahead:
        pending: Future[pa.RecordBatch | None] = ahead.submit(next, pieces, None)
        while True:
            try:
                batch = pending.result()
            except OSError as error:
                failures.append(error)
                return
            if batch is None:
                return
            pending = ahead.submit(next, pieces, None)
            yield batch


def _iterate_pieces(
    files: Sequence[tuple[int, Path]], form: LineFormat, texts: Texts, others: OtherLines, stream: BinaryIO
) -> Iterator[pa.RecordBatch]:
    for file_id, path in files:
        position = _first_position()
        for text in _iterate_chunks(path):
            array = _to_array(text)
            end = text.rfind(b"\n") + 1 or len(text)
            position = position._replace(byte=0)
            while position.byte < end:
                found = log_lines.allocate_lines()
                position, counts = log_lines.parse_lines(array, end, position, form, texts, found)
                if counts.others:
                    rows = found.others[: counts.others]
                    _collect_others(text, rows, counts, file_id, others, stream)
                if counts.plain:
                    yield _to_batch(found, counts.plain, file_id, has_time=form.time >= 0)
        others.lines[file_id] = position.line - 1


def _iterate_chunks(path: Path) -> Iterator[bytes]:
    """Yield the text of a file in pieces; what follows the last line end of a piece is repeated in the next."""
    rest = b""
    with open(path, "rb") as stream:
        while block := stream.read(CHUNK_BYTES):
            text = rest + block
            if end := text.rfind(b"\n") + 1:
                yield text
            rest = text[end:]
    if rest:
        yield rest


def _collect_others(
    text: bytes, rows: np.ndarray, counts: Counts, file_id: int, others: OtherLines, stream: BinaryIO
) -> None:
    others.events += counts.others - counts.headers
    numbers = {"file_id": np.full(len(rows), file_id, np.int64), "line_number": rows[:, 2].copy()}
    others.numbers.append(pa.RecordBatch.from_pydict(numbers))
    stream.writelines(text[first:stop] + b"\n" for first, stop in rows[:, :2].tolist())


def _to_batch(found: PlainLines, rows: int, file_id: int, *, has_time: bool) -> pa.RecordBatch:
    times = [None, pa.py_buffer(found.times)]
    columns = [
        pa.StringArray.from_buffers(rows, pa.py_buffer(found.user_ends), pa.py_buffer(found.users)),
        pa.StringArray.from_buffers(rows, pa.py_buffer(found.item_ends), pa.py_buffer(found.items)),
        pa.array(found.values[:rows]),
        pa.Array.from_buffers(pa.timestamp("us"), rows, times) if has_time else pa.nulls(rows, pa.timestamp("us")),
        pa.array(np.full(rows, file_id, np.int64)),
        pa.array(found.lines[:rows]),
    ]
    return pa.record_batch(columns, schema=EVENT_SCHEMA)


def _first_position() -> Position:
    return Position(byte=0, line=1, movie=np.zeros(log_lines.MAX_MOVIE_BYTES, np.uint8), movie_bytes=0)


def _to_array(text: bytes) -> np.ndarray:
    return np.frombuffer(text, np.uint8) if text else np.frombuffer(b"\0", np.uint8)[:0]
