"""Find and scan raw log files: files, folders and patterns, before anything is written."""

import fnmatch
import glob
import itertools
import logging
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest import files, layouts
from oneclass.tasks.ingest.files import FileScan, FileStillChanging
from oneclass.tasks.ingest.landing import FileRefused, list_landing_files, refuse_unreadable
from oneclass.tasks.ingest.layouts import Layout
from oneclass.tasks.stores.home import Home
from oneclass.tasks.terminal import escape_controls

logger = logging.getLogger(__name__)

PACKED_SUFFIXES = ("", ".gz", ".bz2", ".xz", ".zst", ".zip")
PARTITION = re.compile(r"[A-Za-z_]\w*=.*")
"""A folder that holds the value of a column, as Hive and Spark write them."""
SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class LogFile:
    """A readable log.

    Attributes:
        sha256, size: of the file's bytes on disk.
        signature: of `files.sign_file` when its bytes were read.
        container: of `files.detect_container`.
        encoding: of its text, if it is not UTF-8.
        layout: None if the digest is known, so that it was not scanned.
        text: the scan of its text, without the head; None for Parquet, and if the digest is known.
    """

    location: Path
    sha256: str
    size: int
    signature: tuple[int, ...]
    container: str = ""
    encoding: str = ""
    layout: Layout | None = None
    text: FileScan | None = None

    @property
    def path(self) -> str:
        """The location as text."""
        return str(self.location)

    @property
    def content_sha256(self) -> str:
        """The digest of its text, however it is packed; of the bytes on disk where these were not unpacked."""
        return self.text.sha256 if self.text else self.sha256


def scan_logs(
    paths: Iterable[str | Path],
    dataset: Dataset,
    known: Collection[str] = (),
    rejected: list[FileRefused] | None = None,
    *,
    columns_named: bool = False,
) -> list[LogFile]:
    """Find and scan every log in `paths`: files, folders and glob patterns, in the given order.

    Files of folders and patterns are sorted by name. Each log is read to its end, to detect truncated gzips and damage.

    Args:
        known: digests of the logs in the warehouse, whose layouts are not detected again.
        rejected: if given, unreadable files are added to it instead of raised, and files being written are skipped.
        columns_named: whether a log in the warehouse names its columns; then none is read by position.

    Raises:
        InputError: a path has no log, or a log is unreadable, or changed meanwhile.
    """
    result: list[LogFile] = []
    refused = [] if rejected is None else rejected
    for path in map(Path, paths):
        with refuse_unreadable(path):
            locations = expand_path(path, dataset)
        for location in locations:
            if rejected is None and len(locations) > 1 and not location.stat().st_size:
                continue  # a part of a log without events
            try:
                with refuse_unreadable(location):
                    result.append(_scan_file(location, dataset, known))
            except FileStillChanging as error:
                if rejected is None:
                    raise
                logger.warning("%s It is left for the next run.", error)
            except FileRefused as error:
                refused.append(error)
    unnamed = _find_unnamed(result, columns_named=columns_named)
    refused += unnamed
    if refused and rejected is None:
        raise refused[0]
    left_out = {error.location for error in unnamed}
    return [log for log in result if log.location not in left_out]


def _find_unnamed(logs: Iterable[LogFile], *, columns_named: bool) -> list[FileRefused]:
    """Return the refusal of each log read by its form alone, if another log of the data set names its columns."""
    scanned = [(log, log.layout) for log in logs if log.layout]
    names = (log.path for log, layout in scanned if layout.names_columns)
    named = next(names, "another log in the warehouse" if columns_named else "")
    why = (
        f"has no header, and {named} of the same data set names its columns: a part may have lost them. Add the "
        "header, or state the columns by number, such as --user 1 --item 2."
    )
    unnamed = [log for log, layout in scanned if named and layout.is_by_form]
    return [FileRefused(log.location, f"{log.path}, line 1: {why}") for log in unnamed]


def describe_expected_sources(home: Home, dataset: Dataset) -> str:
    """Describe the raw files of a data set, their sources and where to put them."""
    lines = [f"{home.landing}: holds no raw files of {dataset.name} ({dataset.title})."]
    lines += [f"They are called {', '.join(dataset.files)}.", *(f"They come from {url}" for url in dataset.urls)]
    lines += [f"sha256 of {name}: {digest}" for name, digest in dataset.sha256.items()]
    lines += [f"Licence: {dataset.licence}"] if dataset.licence else []
    return "\n".join([*lines, "Fetch and unpack them, put them there, or name them with --source."])


def expand_path(path: Path, dataset: Dataset) -> list[Path]:
    """Return the files that a source names: itself, or those of a folder or pattern, sorted by name.

    Raises:
        InputError: it names none.
    """
    if path.is_dir():
        found = list_landing_files(path)
        logs = [file for file in found if is_log_name(file.name, dataset)]
        if not logs:
            raise InputError(f"{path}: holds no file called {' or '.join(dataset.files)}. Name the log files.")
        if skipped := [escape_controls(file.name) for file in found if file not in logs]:
            logger.info("%s: left out by their names: %s", path, ", ".join(skipped))
        return logs
    matches = [path] if path.is_file() else map(Path, sorted(glob.glob(str(path), recursive=True)))
    if not (logs := [file for file in matches if file.is_file()]):
        raise InputError(f"{path}: no such file, and none that matches. Check --source, and put a pattern in quotes.")
    return logs


def is_log_name(name: str, dataset: Dataset) -> bool:
    """Whether a file of this name is read from a folder."""
    return any(fnmatch.fnmatch(name, pattern + more) for pattern in dataset.files for more in PACKED_SUFFIXES)


def _scan_file(location: Path, dataset: Dataset, known: Collection[str]) -> LogFile:
    """Read a file to its end, hashing its bytes and scanning its text."""
    _check_location(location)
    signature, container = files.sign_file(location), files.detect_container(location, dataset.encoding)
    text, encoding, layout = None, "", None
    if container != "parquet":
        with files.open_text(location, container) as stream:
            text = files.scan_stream(stream)
    size = location.stat().st_size
    digest = text.sha256 if text and not container and text.size == size else files.hash_file(location)
    if text is None and digest not in known:
        layout = layouts.detect_parquet(location, dataset)
    elif text and digest not in known:
        if dataset.encoding and (not text.is_utf8 or text.has_nul):
            encoding = dataset.encoding
            with files.open_text(location, container, encoding) as stream:
                text = files.scan_stream(stream)
        advice = "" if text.is_utf8 else files.explain_encoding(location, container)
        try:
            layout = layouts.detect_text(str(location), text, dataset)
        except InputError as error:
            if not advice:
                raise
            raise InputError(f"{error}\n\n{advice}") from error
        layout = replace(layout, doubts=(*layout.doubts, advice)) if advice else layout
    if files.sign_file(location) != signature:
        raise FileStillChanging(location)
    if text:
        text.head = b""  # as there may be thousands of logs
    return LogFile(location, digest, size, signature, container, encoding, layout, text)


def _check_location(location: Path) -> None:
    """Check that a file's name is UTF-8, and that no folder `column=value` holds it, whose values only a query reads.

    Raises:
        InputError: one of these does not hold.
    """
    if SURROGATE.search(str(location)):
        raise InputError(f"{location}: its name is not UTF-8 text. Rename it.")
    if folders := list(itertools.takewhile(PARTITION.fullmatch, reversed(location.parts[:-1]))):
        root, form = location.parents[len(folders)], "parquet" if location.suffix == ".parquet" else "csv"
        raise InputError(
            f"{location}: the folder {folders[0]} holds values of a column, which only a query reads. State it in the "
            f"data set's file:\n\n[source]\nquery = \"select * from read_{form}('{root}/**/*{location.suffix}', "
            'hive_partitioning = true)"'
        )
