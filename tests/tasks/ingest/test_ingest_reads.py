"""How often a log's bytes are read, and what happens when they change between the check and the stage."""

import gzip
import hashlib
import io
import os
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from oneclass.flows.parameters import BackfillParameters
from oneclass.flows.prepare import check_run
from oneclass.flows.settings import resolve_settings
from oneclass.tasks import datasets
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.ingest import load
from oneclass.tasks.ingest.sources import SourceScanner
from oneclass.tasks.ingest.stage import ingest
from tests.conftest import query_rows
from tests.tasks.ingest.test_ingest_stage import write_csv

needs_proc = pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="counts bytes in /proc/self/io: Linux only")


def bytes_read(work: Callable[[], object]) -> int:
    """Bytes that this process reads during the work, by the kernel's own count."""

    def count() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    before = count()
    work()
    return count() - before


def date_back(path: Path) -> Path:
    """Date a file back, as one is that was written some time before the run."""
    past = time.time() - 60
    os.utime(path, (past, past))
    return path


def list_content(lines: int) -> list[str]:
    return [f"{n * 48271 % 999_983},{n * n % 9973},{n % 5 + 1}" for n in range(lines)]


def checked_and_ingested(root: Path, path: Path) -> int:
    """The events of a whole ingest as a flow has it: the check before the run, then the stage."""
    run = resolve_settings(BackfillParameters(dataset="ml-1m", home=str(root), source=[str(path)]))
    check_run(run)
    return ingest(run.home, run.dataset, list(run.sources), "run", scanner=run.scanner).events


@pytest.mark.slow
@needs_proc
def test_a_plain_log_is_read_once_by_the_survey_and_once_by_duckdb(tmp_path):
    checked_and_ingested(tmp_path / "first", write_csv(tmp_path / "small.csv", "a,x,5"))  # performs the late imports
    path = date_back(write_csv(tmp_path / "ratings.csv", *list_content(600_000)))
    read = bytes_read(lambda: checked_and_ingested(tmp_path / "home", path))
    assert 1.9 < read / path.stat().st_size < 2.4


def write_plain(folder: Path, text: bytes) -> Path:
    (path := folder / "ratings.csv").write_bytes(text)
    return path


def write_gzip(folder: Path, text: bytes) -> Path:
    (path := folder / "ratings.csv.gz").write_bytes(gzip.compress(text))
    return path


def write_latin1(folder: Path, text: bytes) -> Path:
    return write_plain(folder, text.replace(b"9", b"\xe9"))


def write_uneven(folder: Path, text: bytes) -> Path:
    return write_plain(folder, text + b"1,2,3\r\n")


def write_archive(folder: Path, text: bytes) -> Path:
    # Python 3.14 reads 128 KB at each opening, so the archive has several times as much.
    film = b"1:\n" + b"".join(b"%d,4,2004-01-01\n" % user for user in range(600_000))
    with tarfile.open(path := folder / "training_set.tar.gz", "w:gz") as tar:
        (member := tarfile.TarInfo("training_set/mv_0000001.txt")).size = len(film)
        tar.addfile(member, io.BytesIO(film))
    return path


@needs_proc
@pytest.mark.parametrize("write", [write_plain, write_gzip, write_latin1, write_uneven, write_archive])
def test_looking_twice_reads_once(write, tmp_path):
    text = "\n".join(["user_id,item_id,rating", *list_content(200_000), ""]).encode()
    path = date_back(write(tmp_path, text))
    scanner = SourceScanner(datasets.load_dataset("netflix" if "tar" in path.name else "ml-1m", tmp_path))
    looks = []
    read = bytes_read(lambda: looks.extend(scanner.scan([path]) for _ in range(2)))
    assert looks[0] == looks[1]
    assert 1 <= read / path.stat().st_size < 1.4


@needs_proc
def test_a_log_written_a_moment_ago_is_looked_at_again(tmp_path):
    path = write_csv(tmp_path / "ratings.csv", *list_content(100_000))
    scanner = SourceScanner(datasets.load_dataset("ml-1m", tmp_path))
    read = bytes_read(lambda: [scanner.scan([path]) for _ in range(2)])
    assert read / path.stat().st_size >= 2


def rewrite_in_place(path: Path, before: os.stat_result) -> None:
    write_csv(path, "b,x,1")


def rewritten_and_dated_back(path: Path, before: os.stat_result) -> None:
    write_csv(path, "b,x,1")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_file(path: Path, before: os.stat_result) -> None:
    rewritten_and_dated_back(other := write_csv(path.with_suffix(".new"), "b,x,1"), before)
    os.replace(other, path)


@pytest.mark.slow
@pytest.mark.parametrize("change", [rewrite_in_place, rewritten_and_dated_back, replace_file])
def test_a_log_that_changes_between_check_and_stage_is_read_as_it_is(change, tmp_path):
    path = date_back(write_csv(tmp_path / "ratings.csv", "a,x,5"))
    run = resolve_settings(BackfillParameters(dataset="ml-1m", home=str(tmp_path), source=[str(path)]))
    check_run(run)
    change(path, path.stat())
    ingest(run.home, run.dataset, list(run.sources), "run", scanner=run.scanner)
    query = "select user_id, value, sha256 from raw.events join operations.log_files using (file_id)"
    assert query_rows(run.home, query) == [("b", 1, hashlib.sha256(path.read_bytes()).hexdigest())]


def test_a_log_named_twice_is_read_in_once_and_skipped_once(home, tmp_path):
    path = date_back(write_csv(tmp_path / "ratings.csv", "a,x,5"))
    result = ingest(home, datasets.load_dataset("ml-1m", tmp_path), [path, path], "run")
    assert (result.new, result.skipped, result.file_ids) == ((str(path),), (str(path),), (1, 1))
    assert result.total_events == 1


@pytest.mark.parametrize("change", ["written to", "taken away"])
def test_a_log_that_changes_while_duckdb_reads_is_refused(change, home, tmp_path, monkeypatch):
    path = date_back(write_csv(tmp_path / "ratings.csv", "a,x,5"))
    dataset, load_text = datasets.load_dataset("ml-1m", tmp_path), load._load_text

    def meanwhile(*arguments):
        load_text(*arguments)
        write_csv(path, "a,x,4") if change == "written to" else path.unlink()

    monkeypatch.setattr(load, "_load_text", meanwhile)
    with pytest.raises(OneclassError, match="ratings.csv: was changed or taken away while it was read. Run again"):
        ingest(home, dataset, [path], "run")
    assert query_rows(home, "select * from raw.events") == []


def test_a_known_gzip_is_hashed_and_not_unpacked(tmp_path):
    path = date_back(write_gzip(tmp_path, b"user_id,item_id,rating\na,x,5\n"))
    scanner = SourceScanner(datasets.load_dataset("ml-1m", tmp_path))
    (log,) = scanner.scan([path])
    scanner.scan([write_csv(tmp_path / "other.csv", "b,x,1")])  # so that this is the last look
    (known,) = scanner.scan([path], known={log.sha256: log.size})
    assert (known.sha256, known.text, known.layout) == (log.sha256, None, None)
    assert scanner.scan([path])[0] == log  # and is looked at as a whole where it is not known
