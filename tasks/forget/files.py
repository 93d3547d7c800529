"""Write the files of the landing folder without users, each beside the file that it is to replace.

A record goes if the data set's reader finds an event of a user in it, or if it gives no event and has an id as a word.
The new file is read back, and must give all other events. A file without lines, such as a workbook, is for a person to
edit.
"""

import csv
import gzip
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from oneclass import sql
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest import files
from oneclass.tasks.ingest.files import CHUNK_BYTES, HEAD_BYTES, FileStillChanging
from oneclass.tasks.ingest.landing import refuse_unreadable
from oneclass.tasks.ingest.layouts import JSON, Layout
from oneclass.tasks.ingest.load import load_logs
from oneclass.tasks.ingest.sources import LogFile, scan_logs
from oneclass.tasks.stores.home import escape_path
from oneclass.tasks.stores.warehouse import fetch_row

BEFORE, UNKNOWN = 0, -1  # in the scratch database, the `file_id` of a log as it was, and of one not in the warehouse
MOVIE = rb"\s*\d+\s*:\s*"  # a line of Netflix's format that names the item of those below it


class StagedFile(NamedTuple):
    """A file without the users' lines.

    Attributes:
        location: the file that it replaces.
        path: None if nothing is left of it, so that the file is deleted.
        lines: the number of lines or rows that are left out.
        file_id: of the log in the warehouse, or UNKNOWN.
        log: as the data set's reader reads it; None if it cannot, or nothing is left.
    """

    location: Path
    path: Path | None
    lines: int
    file_id: int = UNKNOWN
    log: LogFile | None = None


class FileEditor:
    """Writes files without users; `found` has those of the users that the files have."""

    def __init__(
        self, scratch: duckdb.DuckDBPyConnection, dataset: Dataset, users: list[str], known: Mapping[str, int]
    ) -> None:
        """Prepare to write files of a data set.

        Args:
            scratch: to a database with the tables of logs. Those in the warehouse stay there as they were read back.
            known: `file_id` by the digest of a log in the warehouse, or of its text.
        """
        self._scratch, self._dataset, self._users, self._known = scratch, dataset, users, dict(known)
        self._word = re.compile(match_words(users).encode())
        self.found: set[str] = set()

    def stage_file(self, location: Path, folder: Path) -> StagedFile | None:
        """Write a file without users into a folder, under its name; None if it has none of them.

        Raises:
            InputError: it has a user, or cannot be searched, and is for a person to edit; or it is being written to.
        """
        for table in ("events", "rejects", "places"):
            self._scratch.execute(f"delete from raw.{table} where file_id <= 0")
        with refuse_unreadable(location):
            log = self._load_log(location, BEFORE, folder)
            container = log.container if log else files.detect_container(location)
            if not (lines := self._find_lines(location, container, log)):
                return None
            is_json = log is None and container == "" and JSON.match(location.read_text(errors="replace")[:HEAD_BYTES])
            if location.is_symlink() or container not in ("", "gzip", "parquet") or is_json:
                raise InputError(f"{location}: has no lines that can be taken out")
            target = folder / location.name
            write = _write_rows if container == "parquet" else _write_lines
            left = write(location, target, lines, container, log.encoding if log else "")
            shutil.copymode(location, target)
        if log is None:
            return StagedFile(location, target if left else None, len(lines))
        file_id = self._known.get(log.sha256, self._known.get(log.content_sha256, UNKNOWN))
        self._known = {digest: one for digest, one in self._known.items() if one != file_id}  # a copy is read once
        before = self._sum_rows(BEFORE)
        after = self._load_log(target, file_id, folder) if before[0] else None
        if before[0] and (after is None or self._sum_rows(file_id) != before):
            raise InputError(f"{location}: without the users' lines, others are read otherwise")
        return StagedFile(location, target if after else None, len(lines), file_id, after)

    def _load_log(self, location: Path, file_id: int, folder: Path) -> LogFile | None:
        """Load a log into the scratch database; None if it is not read as one."""
        try:
            logs = scan_logs([location], self._dataset)
        except FileStillChanging:
            raise
        except InputError:
            return None
        for log in logs:
            load_logs(self._scratch, [(file_id, log)], folder, self._dataset)
        return logs[0] if logs else None

    def _sum_rows(self, file_id: int) -> tuple[Any, ...]:
        """Return the number of a log's events, and sums of digests of its events and rejects, without the users'."""
        values = {"file_id": file_id, "users": self._users, "pattern": match_words(self._users)}
        return fetch_row(self._scratch, sql.statement("forget/sums"), values)

    def _find_lines(self, location: Path, container: str, log: LogFile | None) -> set[int]:
        """Find the lines or rows of users, counted from 1."""
        events = "select distinct line_number, user_id from raw.events where file_id = 0 and user_id in ?"
        owned = self._scratch.execute(events, [self._users]).fetchall()
        numbers = {number for number, _ in owned}
        self.found |= {user for _, user in owned}
        if container == "parquet":
            values = {"path": escape_path(location), "pattern": match_words(self._users)}
            named = {
                row: (row, row + 1, text)
                for row, text in self._scratch.execute(sql.statement("forget/rows"), values).fetchall()
            }
            lines: set[int] = set()
        else:
            records = list(self._iterate_wanted(location, container, log, numbers))
            lines = {line for number, *span, _ in records if number in numbers for line in range(*span)}
            named = {-place if not record[0] else record[0]: record[1:] for place, record in enumerate(records, 1)}
        query = "select distinct line_number from raw.events where file_id = 0 and line_number in ?"
        for (number,) in self._scratch.execute(query, [[*named]]).fetchall():
            del named[number]
        texts = [text for *_, text in named.values()]
        self.found |= {user for user in self._users for text in texts if re.search(match_words([user]), text)}
        numbers = numbers if container == "parquet" else set()
        return lines | numbers | {line for first, stop, _ in named.values() for line in range(first, stop)}

    def _iterate_wanted(
        self, location: Path, container: str, log: LogFile | None, numbers: set[int]
    ) -> Iterator[tuple[int, int, int, str]]:
        """Yield (number, first line, line after the last, text) of each record of a number, or with an id as a word."""
        with files.open_text(location, container, log.encoding if log else "") as text:
            for number, first, stop, record in _iterate_records(text, log.layout if log else None):
                if (number and number in numbers) or self._word.search(record):
                    yield number, first, stop, record.decode(errors="replace")


def match_words(ids: Iterable[str]) -> str:
    """Return a regular expression that matches ids as words."""
    return rf"(?:^|[^0-9A-Za-z_])(?:{'|'.join(map(re.escape, ids))})(?:$|[^0-9A-Za-z_])"


def _iterate_lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield lines with their ends, which are LF, CR or CRLF."""
    rest = b""
    while chunk := stream.read(CHUNK_BYTES):
        *lines, rest = (rest + chunk).splitlines(keepends=True)
        yield from lines
    if rest:
        yield rest


def _iterate_records(stream: IO[bytes], layout: Layout | None) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield (number, first line, line after the last, text) of all but headers; 0 if the reader has no record of it."""
    is_split = layout is not None and layout.form in ("delimited", "netflix")
    record, first, count = b"", 1, layout.skip if layout and is_split else 0
    for number, line in enumerate(_iterate_lines(stream), 1):
        if layout is None or not is_split:
            yield number, number, number + 1, line
            continue
        if number <= layout.skip or (layout.form == "netflix" and re.fullmatch(MOVIE, line)):
            count += number > layout.skip
            continue
        first, record = (first, record + line) if record else (number, line)
        if layout.form == "delimited" and layout.is_quoted and record.count(b'"') % 2:
            continue  # a quoted field goes on
        is_record = _is_record(record.decode(errors="replace").strip("\r\n"), layout)
        count += is_record
        yield count if is_record else 0, first, number + 1, record
        record = b""
    if record:
        yield 0, first, first + len(record.splitlines()), record


def _is_record(record: str, layout: Layout) -> bool:
    """Whether a text has the fields of a record."""
    if not record.strip():
        return False
    if layout.form == "delimited" and layout.is_quoted:
        cells = next(csv.reader(record.splitlines(keepends=True), delimiter=layout.delimiter), [])
    else:
        cells = record.split(layout.delimiter)
    is_trailing = len(cells) == layout.fields + 1 and not cells[-1]
    return len(cells) == layout.fields or is_trailing or (layout.form == "netflix" and len(cells) < layout.fields)


def _write_lines(source: Path, target: Path, lines: set[int], container: str, encoding: str) -> int:
    """Write a text, compressed as it was, without some lines, and return the number of those that are left.

    Raises:
        InputError: it is no text.
    """
    left = 0
    with files.open_text(source, container, encoding) as text, open(target, "wb") as output:
        # Equal texts give equal bytes, also on a second try.
        packed = gzip.GzipFile(filename="", mode="wb", fileobj=output, mtime=0) if container else output
        for number, line in enumerate(_iterate_lines(text), 1):
            if b"\0" in line:
                raise InputError(f"{source}, line {number}: has a byte that is NUL")
            if number not in lines:
                packed.write(line)
                left += 1
        packed.close()
    return left


def _write_rows(source: Path, target: Path, lines: set[int], *_: str) -> int:
    """Write a Parquet file without some rows, with its schema, row groups and compression; returns the rows left."""
    left, position = 0, 1
    with pq.ParquetFile(source) as file:
        compression = file.metadata.row_group(0).column(0).compression.lower()
        with pq.ParquetWriter(target, file.schema_arrow, compression=compression) as writer:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group)
                is_kept = [number not in lines for number in range(position, position + len(table))]
                writer.write_table(table.filter(pa.array(is_kept)))
                position, left = position + len(table), left + sum(is_kept)
    return left
