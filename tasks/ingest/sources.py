"""Raw log files: where they are, what each is, and whether it can be read, before anything is written."""

import fnmatch
import glob
import gzip
import logging
import re
import tarfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tasks.datasets import Dataset
from tasks.errors import InputError
from tasks.ingest import archives, parquet
from tasks.ingest.layouts import Layout, recognise
from tasks.ingest.survey import Survey, sha256, survey
from tasks.stores.home import Home

logger = logging.getLogger(__name__)

LINE_END = re.compile(r"\r\n|\r|\n")
GZIP, PARQUET, ZIP = b"\x1f\x8b", b"PAR1", b"PK\x03\x04"


@dataclass(frozen=True)
class LogFile:
    """A log that can be read.

    Attributes:
        path: as a person would write it; for an archive's member the archive's path and the member's name.
        location: the file on disk: the log itself, or the archive that holds it.
        member: its name inside the archive; empty for a file of its own.
        sha256: of the file's bytes as they are on disk, or of the member's.
        size: those bytes.
        layout: None where the digest is known already, so that the rest was not looked at.
    """

    path: str
    location: Path
    member: str
    sha256: str
    size: int
    gzipped: bool = False
    layout: Layout | None = None
    text: Survey | None = None


def inspect(dataset: Dataset, paths: Iterable[str | Path], known: Collection[str] = ()) -> list[LogFile]:
    """Every log behind `paths`: files, folders, glob patterns and tar archives, in the order given.

    Folders and patterns are taken in the order of their names. Each log is read to its end, once, so that a
    cut-off gzip or a stray binary file is found here.

    Args:
        known: digests of logs that need no further look, because they are in the warehouse.

    Raises:
        InputError: a path holds no log, or a log cannot be read.
    """
    found: list[LogFile] = []
    for path in paths:
        with _readable(Path(path)):
            locations = _expand(Path(path), dataset)
        for location in locations:
            with _readable(location):
                found += _look(location, dataset, known)
    return found


def expected_sources(home: Home, dataset: Dataset) -> str:
    """What to tell a person who has not yet brought the raw files of a data set."""
    lines = [
        f"{home.landing}: holds no raw files of {dataset.name} ({dataset.title}).",
        f"They are called {', '.join(dataset.files)}.",
    ]
    lines += [f"They come from {url}" for url in dataset.urls]
    lines += [f"sha256 of {name}: {digest}" for name, digest in dataset.sha256.items()]
    lines += [f"Licence: {dataset.licence}"] if dataset.licence else []
    return "\n".join([*lines, "Fetch and unpack them, put them there, or name them with --source."])


def _expand(path: Path, dataset: Dataset) -> Sequence[Path]:
    if path.is_dir():
        inside = sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))
        taken = [p for p in inside if _is_log(p.name, dataset)]
        if not taken:
            raise InputError(
                f"{path}: holds no file called {' or '.join(dataset.files)}. Name the log files themselves."
            )
        if left_out := [p.name for p in inside if p not in set(taken)]:
            logger.info("%s: left out %s, which no pattern of %s names", path, ", ".join(left_out), dataset.name)
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


def _is_log(name: str, dataset: Dataset) -> bool:
    return any(fnmatch.fnmatch(name, pattern + more) for pattern in dataset.files for more in ("", ".gz"))


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: its gzip is cut short or damaged ({error}). Fetch it again.") from error
    except tarfile.TarError as error:
        raise InputError(f"{path}: the tar archive is cut short or damaged ({error}). Fetch it again.") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}). Check its permissions.") from error


def _look(path: Path, dataset: Dataset, known: Collection[str]) -> list[LogFile]:
    with open(path, "rb") as raw:
        magic = raw.read(4)
    if not magic:
        raise InputError(f"{path}: is empty. Give a log with at least one line, or leave it out.")
    if magic == ZIP:
        raise InputError(f"{path}: is a zip archive. Unpack it and name the log inside.")
    gzipped = magic.startswith(GZIP)
    with _opened(path, gzipped) as stream:
        is_tar = archives.is_tar(stream.read(archives.HEADER))
    if is_tar:
        return _members(path, gzipped, dataset, known)
    size = path.stat().st_size
    if magic == PARQUET or gzipped:
        digest = sha256(str(path))
        if digest in known:
            return [LogFile(str(path), path, "", digest, size)]
        if magic == PARQUET:
            return [LogFile(str(path), path, "", digest, size, layout=parquet.layout(path, dataset))]
    with _opened(path, gzipped) as stream:
        text = survey(stream)
    if not gzipped:
        digest = text.sha256
    layout = None if digest in known else _layout(str(path), text, dataset)
    return [LogFile(str(path), path, "", digest, size, gzipped, layout, text)]


def _members(path: Path, gzipped: bool, dataset: Dataset, known: Collection[str]) -> list[LogFile]:
    """Logs inside a tar archive, each by its own digest: those that came unpacked before are skipped."""
    found: list[LogFile] = []
    with _opened(path, gzipped) as stream:
        for name, member in archives.logs(stream):
            shown, text = f"{path}/{name}", survey(member)
            layout = None if text.sha256 in known else _layout(shown, text, dataset)
            found.append(LogFile(shown, path, name, text.sha256, text.size, gzipped, layout, text))
    if not found:
        raise InputError(f"{path}: the archive holds no {' or '.join(archives.LOGS)}. Unpack it and name the logs.")
    return found


def _layout(path: str, text: Survey, dataset: Dataset) -> Layout:
    if text.size == 0:
        raise InputError(f"{path}: is empty. Give a log with at least one line, or leave it out.")
    if text.nul_at is not None:
        raise InputError(f"{path}: is a binary file (byte {text.nul_at} is NUL), no log. Name a text or Parquet file.")
    lines = LINE_END.split(text.head.decode("utf-8-sig", errors="replace"))
    whole = lines if text.size == len(text.head) or len(lines) == 1 else lines[:-1]
    return recognise(path, whole[:1000], dataset)


def _opened(path: Path, gzipped: bool) -> IO[bytes]:
    return gzip.open(path, "rb") if gzipped else open(path, "rb")
