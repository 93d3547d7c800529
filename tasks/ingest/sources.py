"""Raw log files: where they are, what each is, and whether it can be read, before anything is written."""

import fnmatch
import glob
import gzip
import logging
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest import parquet
from oneclass.tasks.ingest.formats import LogFormat, detect_format
from oneclass.tasks.ingest.landing import RejectedFile, list_landing_files
from oneclass.tasks.ingest.scan import (
    FileScan,
    FileSignature,
    FileStillChanging,
    HashingStream,
    changed_file_message,
    hash_file,
    scan_stream,
)
from oneclass.tasks.stores.home import Home

LOG_PATTERNS = ("mv_*.txt", "combined_data_*.txt")
TAR_HEADER_BYTES = 512
TAR_MAGIC = slice(257, 262)


def is_tar(head: bytes) -> bool:
    """The bytes begin a tar archive."""
    return head[TAR_MAGIC] == b"ustar"


def iterate_logs(stream: IO[bytes]) -> Iterator[tuple[str, IO[bytes]]]:
    """(name, contents) of every log in an archive, and in the archives right inside it, in its order.

    Each must be read before the next is asked for. The stream is read to its end, so that an archive that
    was cut short is found.

    Raises:
        tarfile.TarError: the archive is cut short or damaged.
        EOFError, zlib.error: so is the gzip round it.
    """
    yield from _iterate_members(stream, "", nested=True)


class _CompleteTarStream:
    """A stream that knows whether it ended as an archive must; tarfile does not notice one cut off inside a header."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._tail = stream, b""

    def read(self, size: int = -1) -> bytes:
        piece = self._stream.read(size)
        self._tail = (self._tail + piece[-TAR_HEADER_BYTES:])[-TAR_HEADER_BYTES:]
        return piece

    def require_end(self) -> None:
        while self.read(1 << 20):
            pass
        if self._tail.strip(b"\0"):
            raise tarfile.ReadError("its closing block of zeros is missing")


def _iterate_members(stream: IO[bytes], folder: str, nested: bool) -> Iterator[tuple[str, IO[bytes]]]:
    ended = _CompleteTarStream(stream)
    with tarfile.open(fileobj=ended, mode="r|") as archive:
        for member in archive:
            contents = archive.extractfile(member) if member.isfile() else None
            if contents is None:
                continue
            name = PurePosixPath(folder, member.name)
            if nested and name.suffix == ".tar":
                yield from _iterate_members(contents, str(name), nested=False)
            elif any(fnmatch.fnmatch(name.name, pattern) for pattern in LOG_PATTERNS):
                yield str(name), contents
    ended.require_end()


logger = logging.getLogger(__name__)

LINE_END = re.compile(r"\r\n|\r|\n")
MAX_LINE_BYTES = 1 << 26
GZIP_MAGIC, PARQUET_MAGIC, ZIP_MAGIC = b"\x1f\x8b", b"PAR1", b"PK\x03\x04"


@dataclass(frozen=True)
class LogFile:
    """A log that can be read.

    Attributes:
        path: as a person would write it; for an archive's member the archive's path and the member's name.
        location: the file on disk: the log itself, or the archive that holds it.
        member: its name inside the archive; empty for a file of its own.
        sha256: of the file's bytes as they are on disk, or of the member's.
        size: those bytes.
        stamp: of `location`, as it was when its bytes were read.
        layout: None where the digest is known already, so that the rest was not looked at.
        text: what its bytes are, without the head; None for Parquet.
    """

    path: str
    location: Path
    member: str
    sha256: str
    size: int
    signature: FileSignature
    gzipped: bool = False
    layout: LogFormat | None = None
    text: FileScan | None = None


_scan_cache: dict[Path, tuple[Dataset, list[LogFile]]] = {}
"""What the last `inspect` of this process found in each file. A flow looks through its logs before anything is
written, and the stage needs the same digests: it takes them from here, for files whose stamp is the same."""


def inspect_sources(
    dataset: Dataset,
    paths: Iterable[str | Path],
    known: Mapping[str, int] | None = None,
    rejected: list[RejectedFile] | None = None,
) -> list[LogFile]:
    """Every log behind `paths`: files, folders, glob patterns and tar archives, in the order given.

    Folders and patterns are taken in the order of their names. Each log is read to its end, so that a cut-off gzip or
    a stray binary file is found here; but not again where the last look in this process was for the same data set
    and the file has kept its inode, size and times since.

    Args:
        known: digest -> bytes of the logs in the warehouse; their layouts are not looked for again.
        refused: takes the files that cannot be read, instead of an error; one that is being written is left out.

    Raises:
        InputError: a path holds no log, or a log cannot be read, or one changed meanwhile.
    """
    found: list[LogFile] = []
    looked: dict[Path, tuple[Dataset, list[LogFile]]] = {}
    for path in paths:
        with _check_readable(Path(path)):
            locations = _expand_path(Path(path), dataset)
        for location in locations:
            try:
                logs = _cached_logs(location, dataset, known or {}, looked)
            except FileStillChanging as error:
                if rejected is None:
                    raise
                logger.warning("%s It is left for the next run.", error)
                continue
            except InputError as error:
                if rejected is None:
                    raise
                rejected.append(RejectedFile(location, str(error)))
                continue
            if logs[0].signature.is_old_enough and all(log.layout for log in logs):
                looked[location] = dataset, logs
            found += logs
    _scan_cache.clear()
    _scan_cache.update(looked)
    return found


def _cached_logs(
    location: Path, dataset: Dataset, known: Mapping[str, int], looked: Mapping[Path, tuple[Dataset, list[LogFile]]]
) -> list[LogFile]:
    """The logs in a file, from the last look at it where that holds."""
    with _check_readable(location):
        stamp = FileSignature.of(location)
        of, logs = looked.get(location) or _scan_cache.get(location) or (None, [])
        if of != dataset or logs[0].signature != stamp:
            logs = _scan_file(location, stamp, dataset, known)
        if not stamp.matches(location):
            raise FileStillChanging(changed_file_message(location))
    return logs


def describe_expected_sources(home: Home, dataset: Dataset) -> str:
    """Which raw files a data set wants, where they come from and where to put them, for a person who has none yet."""
    lines = [
        f"{home.landing}: holds no raw files of {dataset.name} ({dataset.title}).",
        f"They are called {', '.join(dataset.files)}.",
    ]
    lines += [f"They come from {url}" for url in dataset.urls]
    lines += [f"sha256 of {name}: {digest}" for name, digest in dataset.sha256.items()]
    lines += [f"Licence: {dataset.licence}"] if dataset.licence else []
    return "\n".join([*lines, "Fetch and unpack them, put them there, or name them with --source."])


def _expand_path(path: Path, dataset: Dataset) -> Sequence[Path]:
    if path.is_dir():
        inside = list_landing_files(path)
        taken = [p for p in inside if is_log_name(p.name, dataset)]
        if not taken:
            raise InputError(
                f"{path}: holds no file called {' or '.join(dataset.files)}. Name the log files themselves."
            )
        if left_out := [p.name for p in inside if p not in set(taken)]:
            logger.info("%s: left out %s, whose names match no pattern of %s", path, ", ".join(left_out), dataset.name)
        return taken
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
    """A file of this name is taken from a folder."""
    return any(fnmatch.fnmatch(name, pattern + more) for pattern in dataset.files for more in ("", ".gz"))


@contextmanager
def _check_readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: the gzip file is cut short or damaged ({error}). Fetch it again.") from error
    except tarfile.TarError as error:
        raise InputError(f"{path}: the tar archive is cut short or damaged ({error}). Fetch it again.") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}). Check its permissions.") from error


def _scan_file(path: Path, stamp: FileSignature, dataset: Dataset, known: Mapping[str, int]) -> list[LogFile]:
    """Read a file to its end, once: its bytes are hashed and its text is surveyed in the same pass."""
    with open(path, "rb") as raw:
        magic = raw.read(4)
    if not magic:
        raise InputError(f"{path}: is empty. Give a log with at least one line, or leave it out.")
    if magic == ZIP_MAGIC:
        raise InputError(f"{path}: is a zip archive. Unpack it and name the log inside.")
    gzipped = magic.startswith(GZIP_MAGIC)
    with _open_log(path, gzipped) as stream:
        archived = is_tar(stream.read(TAR_HEADER_BYTES))
    if archived:
        return _scan_archive_members(path, stamp, gzipped, dataset, known)
    log = LogFile(str(path), path, "", "", stamp.size, stamp, gzipped)
    if magic == PARQUET_MAGIC:
        log = replace(log, sha256=hash_file(str(path)))
        return [log if log.sha256 in known else replace(log, layout=parquet.detect_parquet_format(path, dataset))]
    if gzipped and stamp.size in known.values() and (digest := hash_file(str(path))) in known:
        return [replace(log, sha256=digest)]  # unpacking a known log would cost far more than hashing it
    digest, text = _hash_and_scan(path, gzipped)
    return [_with_format(replace(log, sha256=digest), text, dataset, known)]


def _hash_and_scan(path: Path, gzipped: bool) -> tuple[str, FileScan]:
    """The digest of a file's bytes, and the survey of the text that is in them."""
    with open(path, "rb") as raw:
        if not gzipped:
            text = scan_stream(raw)
            return text.sha256, text
        hashed = HashingStream(raw)
        with gzip.GzipFile(fileobj=hashed) as unpacked:
            text = scan_stream(unpacked)
        return hashed.hexdigest(), text


def _scan_archive_members(
    path: Path, stamp: FileSignature, gzipped: bool, dataset: Dataset, known: Mapping[str, int]
) -> list[LogFile]:
    """Logs inside a tar archive, each by its own digest: those that came unpacked before are skipped."""
    found: dict[str, LogFile] = {}
    with _open_log(path, gzipped) as stream:
        for name, member in iterate_logs(stream):
            text = scan_stream(member)
            log = LogFile(f"{path}/{name}", path, name, text.sha256, text.size, stamp, gzipped)
            found.pop(name, None)  # a later member takes the place of one of its name, as when it is unpacked
            found[name] = _with_format(log, text, dataset, known)
    if not found:
        raise InputError(f"{path}: the archive holds no {' or '.join(LOG_PATTERNS)}. Unpack it and name the logs.")
    return list(found.values())


def _with_format(log: LogFile, text: FileScan, dataset: Dataset, known: Mapping[str, int]) -> LogFile:
    """The log with its layout; the head of its text has served and is let go, for there may be thousands of logs."""
    layout = None if log.sha256 in known else _detect_layout(log.path, text, dataset)
    return replace(log, layout=layout, text=replace(text, head=b""))


def _detect_layout(path: str, text: FileScan, dataset: Dataset) -> LogFormat:
    if text.size == 0:
        raise InputError(f"{path}: is empty. Give a log with at least one line, or leave it out.")
    if text.nul_line is not None:
        raise InputError(
            f"{path}: is a binary file, not a log: byte {text.nul_line} is NUL. Name a text or Parquet file."
        )
    lines = LINE_END.split(text.head.decode("utf-8-sig", errors="replace"))
    whole = lines if text.size == len(text.head) or len(lines) == 1 else lines[:-1]
    if text.max_line_bytes > MAX_LINE_BYTES:
        raise InputError(
            f"{path}, line {text.longest_line}: has {text.max_line_bytes:,} bytes, more than the {MAX_LINE_BYTES:,} of the longest "
            "line that is read. Line ends may be missing there: break the line, or take it out."
        )
    return detect_format(path, whole[:1000], dataset)


def _open_log(path: Path, gzipped: bool) -> IO[bytes]:
    return gzip.open(path, "rb") if gzipped else open(path, "rb")
