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
from pathlib import Path
from typing import IO

from tasks.datasets import Dataset
from tasks.errors import InputError
from tasks.ingest import archives, parquet
from tasks.ingest.landing import Refused, files_in
from tasks.ingest.layouts import Layout, recognise
from tasks.ingest.stamps import Stamp, StillChanging, changed
from tasks.ingest.survey import Hashed, Survey, sha256, survey
from tasks.stores.home import Home

logger = logging.getLogger(__name__)

LINE_END = re.compile(r"\r\n|\r|\n")
LONGEST_LINE = 1 << 26
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
        stamp: of `location`, as it was when its bytes were read.
        layout: None where the digest is known already, so that the rest was not looked at.
        text: what its bytes are, without the head; None for Parquet.
    """

    path: str
    location: Path
    member: str
    sha256: str
    size: int
    stamp: Stamp
    gzipped: bool = False
    layout: Layout | None = None
    text: Survey | None = None


_last_look: dict[Path, tuple[Dataset, list[LogFile]]] = {}
"""What the last `inspect` of this process found in each file. A flow looks through its logs before anything is
written, and the stage needs the same digests: it takes them from here, for files whose stamp is the same."""


def inspect(
    dataset: Dataset,
    paths: Iterable[str | Path],
    known: Mapping[str, int] | None = None,
    refused: list[Refused] | None = None,
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
        with _readable(Path(path)):
            locations = _expand(Path(path), dataset)
        for location in locations:
            try:
                logs = _look_again(location, dataset, known or {}, looked)
            except StillChanging as error:
                if refused is None:
                    raise
                logger.warning("%s It is left for the next run.", error)
                continue
            except InputError as error:
                if refused is None:
                    raise
                refused.append(Refused(location, str(error)))
                continue
            if logs[0].stamp.settled and all(log.layout for log in logs):
                looked[location] = dataset, logs
            found += logs
    _last_look.clear()
    _last_look.update(looked)
    return found


def _look_again(
    location: Path, dataset: Dataset, known: Mapping[str, int], looked: Mapping[Path, tuple[Dataset, list[LogFile]]]
) -> list[LogFile]:
    """The logs in a file, from the last look at it where that holds."""
    with _readable(location):
        stamp = Stamp.of(location)
        of, logs = looked.get(location) or _last_look.get(location) or (None, [])
        if of != dataset or logs[0].stamp != stamp:
            logs = _look(location, stamp, dataset, known)
        if not stamp.holds(location):
            raise StillChanging(changed(location))
    return logs


def expected_sources(home: Home, dataset: Dataset) -> str:
    """Which raw files a data set wants, where they come from and where to put them, for a person who has none yet."""
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
        inside = files_in(path)
        taken = [p for p in inside if is_log(p.name, dataset)]
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


def is_log(name: str, dataset: Dataset) -> bool:
    """A file of this name is taken from a folder."""
    return any(fnmatch.fnmatch(name, pattern + more) for pattern in dataset.files for more in ("", ".gz"))


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: the gzip file is cut short or damaged ({error}). Fetch it again.") from error
    except tarfile.TarError as error:
        raise InputError(f"{path}: the tar archive is cut short or damaged ({error}). Fetch it again.") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}). Check its permissions.") from error


def _look(path: Path, stamp: Stamp, dataset: Dataset, known: Mapping[str, int]) -> list[LogFile]:
    """Read a file to its end, once: its bytes are hashed and its text is surveyed in the same pass."""
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
        return _members(path, stamp, gzipped, dataset, known)
    log = LogFile(str(path), path, "", "", stamp.size, stamp, gzipped)
    if magic == PARQUET:
        log = replace(log, sha256=sha256(str(path)))
        return [log if log.sha256 in known else replace(log, layout=parquet.layout(path, dataset))]
    if gzipped and stamp.size in known.values() and (digest := sha256(str(path))) in known:
        return [replace(log, sha256=digest)]  # unpacking a known log would cost far more than hashing it
    digest, text = _one_pass(path, gzipped)
    return [_surveyed(replace(log, sha256=digest), text, dataset, known)]


def _one_pass(path: Path, gzipped: bool) -> tuple[str, Survey]:
    """The digest of a file's bytes, and the survey of the text that is in them."""
    with open(path, "rb") as raw:
        if not gzipped:
            text = survey(raw)
            return text.sha256, text
        hashed = Hashed(raw)
        with gzip.GzipFile(fileobj=hashed) as unpacked:
            text = survey(unpacked)
        return hashed.hexdigest(), text


def _members(path: Path, stamp: Stamp, gzipped: bool, dataset: Dataset, known: Mapping[str, int]) -> list[LogFile]:
    """Logs inside a tar archive, each by its own digest: those that came unpacked before are skipped."""
    found: dict[str, LogFile] = {}
    with _opened(path, gzipped) as stream:
        for name, member in archives.logs(stream):
            text = survey(member)
            log = LogFile(f"{path}/{name}", path, name, text.sha256, text.size, stamp, gzipped)
            found.pop(name, None)  # a later member takes the place of one of its name, as when it is unpacked
            found[name] = _surveyed(log, text, dataset, known)
    if not found:
        raise InputError(f"{path}: the archive holds no {' or '.join(archives.LOGS)}. Unpack it and name the logs.")
    return list(found.values())


def _surveyed(log: LogFile, text: Survey, dataset: Dataset, known: Mapping[str, int]) -> LogFile:
    """The log with its layout; the head of its text has served and is let go, for there may be thousands of logs."""
    layout = None if log.sha256 in known else _layout(log.path, text, dataset)
    return replace(log, layout=layout, text=replace(text, head=b""))


def _layout(path: str, text: Survey, dataset: Dataset) -> Layout:
    if text.size == 0:
        raise InputError(f"{path}: is empty. Give a log with at least one line, or leave it out.")
    if text.nul_at is not None:
        raise InputError(
            f"{path}: is a binary file, not a log: byte {text.nul_at} is NUL. Name a text or Parquet file."
        )
    lines = LINE_END.split(text.head.decode("utf-8-sig", errors="replace"))
    whole = lines if text.size == len(text.head) or len(lines) == 1 else lines[:-1]
    if text.longest > LONGEST_LINE:
        raise InputError(
            f"{path}, line {text.longest_at}: has {text.longest:,} bytes, more than the {LONGEST_LINE:,} of the longest "
            "line that is read. Line ends may be missing there: break the line, or take it out."
        )
    return recognise(path, whole[:1000], dataset)


def _opened(path: Path, gzipped: bool) -> IO[bytes]:
    return gzip.open(path, "rb") if gzipped else open(path, "rb")
