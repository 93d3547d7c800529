"""Find users in the warehouse and in the files of the landing folder.

The warehouse knows the lines of a log that it holds; another log is read as the data set says. A line that cannot be
read, and a file of another form, has a user if it has the id as a word.
"""

import itertools
import re
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from oneclass import sql
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.forget.rewrite import find_line_ends
from oneclass.tasks.ingest import containers, query_source
from oneclass.tasks.ingest.column_names import match_columns
from oneclass.tasks.ingest.load import load_logs
from oneclass.tasks.ingest.scan import CHUNK_BYTES, ByteStream, FileStillChanging
from oneclass.tasks.ingest.sources import LogFile, SourceScanner, check_readable
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home

WORD = "0-9A-Za-z_"
COUNT_OF_NONE = b"0\n"
"""A line of a counted adjacency list without items. It stays, as the number of a line is its user's id."""


@dataclass(frozen=True)
class Query:
    """The users to forget, and the parameters of `sql/forget.sql`."""

    users: list[str]

    @property
    def pattern(self) -> str:
        """A regular expression that matches an id as a word."""
        return f"(^|[^{WORD}])(?:{'|'.join(map(re.escape, self.users))})($|[^{WORD}])"

    def select_lines(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Create the table `forgotten_lines`."""
        connection.execute(sql.statement("forget/lines"), {"users": self.users, "pattern": self.pattern})

    def fetch_users(self, connection: duckdb.DuckDBPyConnection) -> set[str]:
        """Return those of the users that the logs of a database have."""
        values = {"users": self.users, "word": WORD}
        return {user for (user,) in connection.execute(sql.statement("forget/users"), values).fetchall()}


@dataclass(frozen=True)
class FoundFile:
    """A file of the landing folder with lines of users to forget.

    Attributes:
        lines: their sorted numbers by member of an archive, by "" of another file; None if it cannot be rewritten.
        container, encoding: of `LogFile`.
        in_place_of_line: of `rewrite_log`.
        known: `file_id` and sha256 of each member that is in the warehouse.
        is_left_empty: whether no line that can be read would remain.
    """

    location: Path
    lines: dict[str, np.ndarray] | None
    container: str = ""
    encoding: str = ""
    in_place_of_line: bytes = b""
    known: dict[str, tuple[int, str]] = field(default_factory=dict)
    is_left_empty: bool = False


class _Lines(NamedTuple):
    """By `file_id`: the lines to forget, and how many others can be read."""

    forgotten: dict[int, np.ndarray]
    remaining: dict[int, int]


def find_users(
    connection: duckdb.DuckDBPyConnection, home: Home, dataset: Dataset, query: Query
) -> tuple[list[FoundFile], set[str]]:
    """Find users in the warehouse and below the landing folder, and create the warehouse's table `forgotten_lines`.

    Args:
        connection: to the warehouse.

    Returns:
        The files with lines of theirs, and the users that were found.

    Raises:
        InputError: a file is being written to.
    """
    known = dict(connection.execute("select sha256, bytes from operations.log_files").fetchall())
    by_digest = "select {} as digest, file_id from operations.log_files where digest is not null"
    ids = {}
    for column in ("content_sha256", "sha256"):
        ids |= dict(connection.execute(by_digest.format(column)).fetchall())
    readable, others = _scan_files(home, dataset, known)
    logs = [log for logs in readable for log in logs]
    file_ids = {log.path: ids.get(log.sha256, ids.get(log.content_sha256)) for log in logs}
    unread = [log for log in logs if file_ids[log.path] is None]
    with _load_logs(home, dataset, unread) as loaded:
        users = query.fetch_users(connection) | query.fetch_users(loaded)
        in_warehouse, in_unread = (_select_lines(database, query) for database in (connection, loaded))
    unread_ids = {log.path: number for number, log in enumerate(unread, 1)}
    found = []
    for logs in readable:
        lines, remaining, known_logs = {}, 0, {}
        for log in logs:
            number, database = file_ids[log.path], in_warehouse
            if number is None:
                number, database = unread_ids[log.path], in_unread
            else:
                known_logs[log.member] = (number, log.sha256)
            remaining += database.remaining.get(number, 0)
            if number in database.forgotten:
                lines[log.member] = database.forgotten[number]
        if lines:
            found.append(_describe_log(logs[0], dataset, lines, known_logs, is_left_empty=not remaining))
    for location in others:
        file, matched = _search_words(location, dataset, query)
        users |= matched
        found += [file] if file else []
    return found, users


def _scan_files(home: Home, dataset: Dataset, known: Mapping[str, int]) -> tuple[list[list[LogFile]], list[Path]]:
    """Return the logs of each file that is read as the data set says, and the other files."""
    scanner, readable, others = SourceScanner(dataset), [], []
    for location in sorted(home.landing.rglob("*")):
        if not location.is_file():
            continue
        if query_source.TAKEN.fullmatch(location.name):
            others.append(location)
            continue
        try:
            readable.append(scanner.scan([location], known))
        except FileStillChanging:
            raise
        except InputError:
            others.append(location)
    return readable, others


@contextmanager
def _load_logs(home: Home, dataset: Dataset, logs: Sequence[LogFile]) -> Generator[duckdb.DuckDBPyConnection]:
    """Load logs into a database in memory, numbered from 1."""
    home.spill.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="forget-", dir=home.spill) as scratch,
        duckdb.connect(config=warehouse.database_config(home)) as connection,
    ):
        connection.execute("set TimeZone = 'UTC'")
        connection.execute(sql.schema()[0])  # the tables of `raw`
        load_logs(connection, list(enumerate(logs, 1)), Path(scratch), dataset)
        yield connection


def _select_lines(connection: duckdb.DuckDBPyConnection, query: Query) -> _Lines:
    query.select_lines(connection)
    rows = connection.execute("from forgotten_lines order by file_id, line_number").fetchnumpy()
    numbers, first = np.unique(rows["file_id"], return_index=True)
    forgotten = dict(zip(numbers.tolist(), np.split(np.asarray(rows["line_number"]), first[1:]), strict=False))
    return _Lines(forgotten, dict(connection.execute(sql.statement("forget/remaining")).fetchall()))


def _describe_log(
    log: LogFile,
    dataset: Dataset,
    lines: dict[str, np.ndarray],
    known: dict[str, tuple[int, str]],
    *,
    is_left_empty: bool,
) -> FoundFile:
    # Layout and encoding of a known log were not detected.
    log = SourceScanner(dataset).scan([log.location])[0]
    is_counted = log.layout is not None and log.layout.statement == "counted_adjacency"
    in_place = COUNT_OF_NONE if is_counted else b""
    return FoundFile(log.location, lines, log.container, log.encoding, in_place, known, is_left_empty)


def _search_words(location: Path, dataset: Dataset, query: Query) -> tuple[FoundFile | None, set[str]]:
    """Search a file that is not read as the data set says; one that cannot be searched counts as found."""
    try:
        with check_readable(location):
            container = containers.detect_container(location)
            if container == "parquet":
                rows, users = _search_rows(location, dataset, query.users)
                is_text = True
            else:
                with containers.open_text(location, container) as stream:
                    rows, users, is_text = _search_text(stream, query.users)
    except (InputError, pa.ArrowException):
        return FoundFile(location, None), set()
    if not users:
        return None, users
    return FoundFile(location, {"": rows} if is_text else None, container), users


def _search_text(stream: ByteStream, users: Sequence[str]) -> tuple[np.ndarray, set[str], bool]:
    """Return the numbers of the lines with an id as a word, the users, and whether no byte is NUL."""
    ids = b"|".join(re.escape(user.encode()) for user in users)
    word = re.compile(b"(?<![%b])(?:%b)(?![%b])" % (WORD.encode(), ids, WORD.encode()))
    found, matched, is_text = set(), set(), True
    number, rest = 1, b""
    for chunk in itertools.chain(iter(lambda: stream.read(CHUNK_BYTES), b""), [b""]):
        text = rest + chunk
        is_text = is_text and b"\0" not in chunk
        stop = max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1)) + 1 if chunk else len(text)
        ends = find_line_ends(text[:stop])
        for match in word.finditer(text, 0, stop):
            found.add(number + int(np.searchsorted(ends, match.start(), side="right")))
            matched.add(match[0].decode())
        number, rest = number + len(ends), text[stop:]
    return np.array(sorted(found), np.int64), matched, is_text


def _search_rows(location: Path, dataset: Dataset, users: Sequence[str]) -> tuple[np.ndarray, set[str]]:
    """Return the numbers of a Parquet file's rows with an id, and the users.

    The column of the user decides, also in a copy of the rows that `[source]` took; without one all columns do.
    """
    found, matched, number = [], set(), 0
    with pq.ParquetFile(location) as file:
        for batch in file.iter_batches():
            for row in batch.to_pylist():
                number += 1
                cells = dict(row["cells"]) if query_source.TAKEN.fullmatch(location.name) else row
                names = list(cells)
                position = match_columns(names, dataset.columns)[0].get("user")
                values = [cells[names[position - 1]]] if position else list(cells.values())
                ids = {re.sub(r"\.0+$", "", str(value).strip(" ")) for value in values} & set(users)
                if ids:
                    found.append(number)
                    matched |= ids
    return np.array(found, np.int64), matched
