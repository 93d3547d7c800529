"""Find and scan raw log files: files, folders, patterns and archives, before anything is written."""

import fnmatch
import glob
import gzip
import logging
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backports import zstd

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest import containers, parquet
from oneclass.tasks.ingest.formats import detect_format
from oneclass.tasks.ingest.landing import RejectedFile, list_landing_files
from oneclass.tasks.ingest.log_format import LogFormat
from oneclass.tasks.ingest.scan import (
    FileScan,
    FileSignature,
    FileStillChanging,
    HashingStream,
    NameNotUtf8,
    changed_file_message,
    check_name,
    hash_file,
    scan_stream,
)
from oneclass.tasks.stores.home import Home
from oneclass.tasks.terminal import escape_controls

logger = logging.getLogger(__name__)

LINE_END = re.compile(r"\r\n|\r|\n")
MAX_LINE_BYTES = 1 << 26
PACKED_SUFFIXES = ("", ".gz", ".bz2", ".xz", ".zst", ".zip")
MIN_UTF16_ZEROS = 0.5
"""Share of one half of the bytes that are NUL in UTF-16 text of a Latin script."""


@dataclass(frozen=True)
class LogFile:
    """A readable log.

    Attributes:
        path: for messages; for an archive's member the archive's path and the member's name.
        location: the file on disk: the log itself, or its archive.
        member: its name inside the archive; empty for a plain file.
        sha256: of the file's bytes on disk, or of the member's.
        size: their number.
        signature: of `location` when its bytes were read.
        container: of `containers.detect_container`.
        encoding: of its text, if it is not UTF-8.
        layout: None if the digest is known, so that the rest was not scanned.
        text: the scan of its bytes, without the head; None for Parquet.
    """

    path: str
    location: Path
    member: str
    sha256: str
    size: int
    signature: FileSignature
    container: str = ""
    encoding: str = ""
    layout: LogFormat | None = None
    text: FileScan | None = None

    @property
    def text_scan(self) -> FileScan:
        """`text`, of a log that is not Parquet."""
        assert self.text is not None
        return self.text

    @property
    def content_sha256(self) -> str:
        """The digest of its text, however it is packed; of the bytes on disk where these were not unpacked."""
        return self.text.sha256 if self.text else self.sha256


class SourceScanner:
    """Finds and scans the raw logs of a data set. A file that is unchanged since the last scan is not read again."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self._scans: dict[Path, list[LogFile]] = {}
        self._left_out: set[Path] = set()

    def scan(
        self,
        paths: Iterable[str | Path],
        known: Mapping[str, int] | None = None,
        rejected: list[RejectedFile] | None = None,
    ) -> list[LogFile]:
        """Find and scan every log in `paths`: files, folders, glob patterns and tar archives, in the given order.

        Files of folders and patterns are sorted by name. Each log is read to its end, to detect truncated gzips and
        binary files, unless the last call scanned it and its inode, size and times are unchanged.

        Args:
            known: digest -> bytes of the logs in the warehouse, whose layouts are not detected again.
            rejected: if given, unreadable files are added to it instead of raised, and files being written are skipped.
                A file of a folder or pattern whose name is not UTF-8 is always left out with a warning, if others
                remain.

        Raises:
            InputError: a path has no log, or a log is unreadable, or changed meanwhile.
        """
        result: list[LogFile] = []
        scans: dict[Path, list[LogFile]] = {}
        for path in paths:
            check_name(Path(path))
            with check_readable(Path(path)):
                locations = expand_path(Path(path), self.dataset)
            for location in locations:
                try:
                    check_name(location)
                    logs = self._scan_if_changed(location, known or {}, scans)
                except FileStillChanging as error:
                    if rejected is None:
                        raise
                    logger.warning("%s It is left for the next run.", error)
                    continue
                except NameNotUtf8 as error:
                    if rejected is not None:
                        rejected.append(RejectedFile(location, str(error)))
                    elif location == locations[-1] and not result:
                        raise
                    elif location not in self._left_out:
                        self._left_out.add(location)
                        logger.warning("%s It is left out.", error)
                    continue
                except InputError as error:
                    if rejected is None:
                        raise
                    rejected.append(RejectedFile(location, str(error)))
                    continue
                if logs[0].signature.is_old_enough and all(log.layout for log in logs):
                    scans[location] = logs
                result += logs
        self._scans = scans
        return result

    def _scan_if_changed(
        self, location: Path, known: Mapping[str, int], scans: Mapping[Path, list[LogFile]]
    ) -> list[LogFile]:
        with check_readable(location):
            signature = FileSignature.of(location)
            logs = scans.get(location) or self._scans.get(location) or []
            if not logs or logs[0].signature != signature:
                logs = _scan_file(location, signature, self.dataset, known)
            if not signature.matches(location):
                raise FileStillChanging(changed_file_message(location))
        return logs


def describe_expected_sources(home: Home, dataset: Dataset) -> str:
    """Describe the raw files of a data set, their sources and where to put them."""
    lines = [
        f"{home.landing}: holds no raw files of {dataset.name} ({dataset.title}).",
        f"They are called {', '.join(dataset.files)}.",
    ]
    lines += [f"They come from {url}" for url in dataset.urls]
    lines += ["[source] of the data set's file gave none."] if dataset.source else []
    lines += [f"sha256 of {name}: {digest}" for name, digest in dataset.sha256.items()]
    lines += [f"Licence: {dataset.licence}"] if dataset.licence else []
    return "\n".join([*lines, "Fetch and unpack them, put them there, or name them with --source."])


def expand_path(path: Path, dataset: Dataset) -> Sequence[Path]:
    """Return the files that a source names: itself, or those of a folder or pattern, sorted by name.

    Raises:
        InputError: it names none.
    """
    if path.is_dir():
        files = list_landing_files(path)
        logs = [p for p in files if is_log_name(p.name, dataset)]
        if not logs:
            raise InputError(
                f"{path}: holds no file called {' or '.join(dataset.files)}. Name the log files themselves."
            )
        if skipped := [escape_controls(p.name) for p in files if p not in set(logs)]:
            logger.info("%s: left out %s, whose names match no pattern of %s", path, ", ".join(skipped), dataset.name)
        return logs
    if path.is_file():
        return [path]
    if glob.has_magic(str(path)):
        if matches := sorted(Path(p) for p in glob.glob(str(path), recursive=True) if Path(p).is_file()):
            return matches
        raise InputError(f"{path}: no file matches. Check the pattern, and put it in quotes.")
    if path.exists():
        raise InputError(f"{path}: is neither a file nor a folder. Name a log file.")
    raise InputError(f"{path}: no such file. Check the path of --source.")


def is_log_name(name: str, dataset: Dataset) -> bool:
    """Whether a file of this name is read from a folder."""
    return any(fnmatch.fnmatch(name, pattern + more) for pattern in dataset.files for more in PACKED_SUFFIXES)


@contextmanager
def check_readable(path: Path) -> Generator[None]:
    """Raise an `InputError` that names the file if it cannot be read in the block."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile, lzma.LZMAError, zstd.ZstdError) as error:
        raise InputError(f"{path}: the compressed file is cut short or damaged ({error}). Fetch it again.") from error
    except tarfile.TarError as error:
        raise InputError(f"{path}: the tar archive is cut short or damaged ({error}). Fetch it again.") from error
    except OSError as error:
        advice = "Check its permissions." if error.errno else "Fetch it again."  # bz2 has no error of its own
        raise InputError(f"{path}: cannot be read ({error.strerror or error}). {advice}") from error


def _scan_file(path: Path, stamp: FileSignature, dataset: Dataset, known: Mapping[str, int]) -> list[LogFile]:
    """Read a file to its end once, hashing its bytes and scanning its text in the same pass."""
    if not stamp.size:
        raise InputError(f"{path}: is empty. Give a log with at least one line, or leave it out.")
    container = containers.detect_container(path)
    log = LogFile(str(path), path, "", "", stamp.size, stamp, container)
    if container == "parquet":
        log = replace(log, sha256=hash_file(str(path)))
        return [log if log.sha256 in known else replace(log, layout=parquet.detect_parquet_format(path, dataset))]
    with containers.open_text(path, container) as stream:
        archived = containers.is_tar(stream)
    if archived:
        return _scan_archive_members(path, stamp, container, dataset, known)
    if container and stamp.size in known.values() and (digest := hash_file(str(path))) in known:
        return [replace(log, sha256=digest)]  # unpacking a known log would cost far more than hashing it
    digest, text = _hash_and_scan(path, container)
    if dataset.encoding and (not text.utf8 or text.nul_line is not None):
        log = replace(log, encoding=dataset.encoding)
        with containers.open_text(path, container, dataset.encoding) as stream:
            text = scan_stream(stream)
    return [_with_format(replace(log, sha256=digest), text, dataset, known)]


def _hash_and_scan(path: Path, container: str) -> tuple[str, FileScan]:
    """Return the digest of a file's bytes and the scan of its text."""
    if container != "gzip":
        with containers.open_text(path, container) as stream:
            text = scan_stream(stream)
        is_plain = not container and text.size == path.stat().st_size
        return text.sha256 if is_plain else hash_file(str(path)), text
    with open(path, "rb") as raw:
        hashed: Any = HashingStream(raw)  # GzipFile only reads it
        with gzip.GzipFile(fileobj=hashed) as unpacked:
            text = scan_stream(unpacked)
        digest = hashed.hexdigest()
    if text.head.startswith(containers.UTF16_MARKS):
        with containers.open_text(path, container) as stream:
            text = scan_stream(stream)
    return digest, text


def _scan_archive_members(
    path: Path, stamp: FileSignature, container: str, dataset: Dataset, known: Mapping[str, int]
) -> list[LogFile]:
    """Scan the logs inside a tar archive, each with its own digest, so that logs ingested unpacked are skipped."""
    found: dict[str, LogFile] = {}
    with containers.open_text(path, container) as stream:
        for name, member in containers.iterate_logs(stream):
            text = scan_stream(member)
            log = LogFile(f"{path}/{name}", path, name, text.sha256, text.size, stamp, container)
            found.pop(name, None)  # a later member takes the place of one of its name, as when it is unpacked
            found[name] = _with_format(log, text, dataset, known)
    if not found:
        with containers.open_text(path, container) as stream:
            names = containers.list_tar(stream)
        raise InputError(containers.explain_archive(path, "tar", names))
    return list(found.values())


def _with_format(log: LogFile, text: FileScan, dataset: Dataset, known: Mapping[str, int]) -> LogFile:
    """Add the layout to a log, and drop the head of its text to save memory, as there may be thousands of logs."""
    layout = None if log.sha256 in known else _detect_layout(log, text, dataset)
    return replace(log, layout=layout, text=replace(text, head=b"", tail=b""))


def _detect_layout(log: LogFile, text: FileScan, dataset: Dataset) -> LogFormat:
    path = log.path
    if text.size == 0:
        raise InputError(f"{path}: is empty. Give a log with at least one line, or leave it out.")
    if text.nul_line is not None:
        raise InputError(_explain_binary(path, text))
    if text.max_line_bytes > MAX_LINE_BYTES:
        raise InputError(
            f"{path}, line {text.longest_line}: has {text.max_line_bytes:,} bytes, more than the {MAX_LINE_BYTES:,} of "
            "the longest line that is read. Line ends may be missing there: break the line, or take it out."
        )
    try:
        return detect_format(path, _first_lines(text, "utf-8-sig"), dataset, _last_line(text))
    except InputError as error:
        encoding = "" if text.utf8 or log.member else containers.guess_encoding(log.location, log.container)
        if not encoding:
            raise
        explained = (
            f'{path}: is neither UTF-8 text nor Parquet. State its encoding, which may be:\n\nencoding = "{encoding}"'
        )
        try:
            detect_format(path, _first_lines(text, encoding), dataset)
        except InputError as of_columns:
            explained += f"\n\nThen: {of_columns}"
        raise InputError(explained) from error


def _first_lines(text: FileScan, encoding: str) -> list[str]:
    """Return the first whole lines of a log."""
    lines = LINE_END.split(text.head.decode(encoding, errors="replace"))
    whole = lines if text.size == len(text.head) or len(lines) == 1 else lines[:-1]
    return whole[:1000]


def _last_line(text: FileScan) -> str:
    """Return the last line of a log that is not blank, as far as the tail has it."""
    lines = [line for line in LINE_END.split(text.tail.decode(errors="replace")) if line.strip()]
    return lines[-1] if lines else ""


def _explain_binary(path: str, text: FileScan) -> str:
    """Return the refusal of a file with NUL bytes, which UTF-16 text without its mark has too."""
    for encoding, zeros in (("utf-16-le", text.head[1::2]), ("utf-16-be", text.head[::2])):
        shown = text.head[:200].decode(encoding, "replace")
        if zeros.count(0) > MIN_UTF16_ZEROS * len(zeros) and all(
            char.isprintable() or char.isspace() for char in shown
        ):
            return f'{path}: is UTF-16 text without a mark. State its encoding:\n\nencoding = "{encoding}"'
    return f"{path}: is a binary file, not a log: byte {text.nul_line} is NUL. Convert it to CSV or Parquet."
