"""Inputs that are no logs: one clear message each, and nothing is written."""

import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest

from oneclass.tasks import datasets
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.sources import describe_expected_sources
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores.home import Home
from tests.conftest import home_in


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home whose folder does not exist."""
    return home_in(tmp_path)


CSV = b"user_id,item_id,rating\n" + b"1,2,3\n" * 9999


def _make_tar() -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for film in (b"1", b"2"):
            (member := tarfile.TarInfo(f"mv_{film.decode()}.txt")).size = 20
            tar.addfile(member, io.BytesIO(film + b":\n10,4,2004-01-01\n\n"))
    return archive.getvalue()


UNREADABLE = {
    "empty": (b"", "is empty"),
    "blank": (b"\n \n", "nothing but blank lines"),
    "empty gzip": (gzip.compress(b""), "is empty"),
    "binary": (CSV + b"\0", f"byte {len(CSV)} is NUL"),
    "no text": (bytes(range(128, 256)), "is neither UTF-8 text nor Parquet"),
    "gzip cut short": (gzip.compress(CSV)[:-9], "cut short or damaged"),
    "gzip with a flipped byte": (
        gzip.compress(CSV)[:-6] + b"\1" + gzip.compress(CSV)[-5:],
        "cut short or damaged",
    ),
    "tar cut in a header": (_make_tar()[:1500], "cut short or damaged"),
    "tar cut in a log": (_make_tar()[:1540], "cut short or damaged"),
    "tar.gz cut short": (gzip.compress(_make_tar())[:-9], "cut short or damaged"),
    "tar without logs": (_make_tar().replace(b"mv_", b"xx_").replace(b"\x00ustar", b"\x00ustar"), "damaged"),
    "zip": (b"PK\x03\x04rest", "the zip archive is cut short or damaged"),
    "cut Parquet": (b"PAR1 and no more", "is not a complete Parquet file"),
    "other columns": (b"a,b,c\n1,2,3\n", "line 1: has the columns a, b, c"),
    "no header": (b"1,2,3\n1,2,3\n", 'fields = ["user", "item", "value"]'),
    "prose": (b"hello\n", "is not in a known format"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_an_unreadable_file(home, tmp_path, name):
    content, said = UNREADABLE[name]
    (path := tmp_path / "log").write_bytes(content)
    (good := tmp_path / "good.csv").write_bytes(CSV)
    with pytest.raises(InputError) as error:
        ingest(home, datasets.load_dataset("ml-1m", tmp_path), [good, path], "run")
    assert str(path) in str(error.value) and said in str(error.value)
    assert not home.root.exists()


@pytest.mark.parametrize(
    "source, said",
    [
        ("nowhere.csv", "no such file"),
        ("*.csv", "no file matches"),
        ("folder", "ratings*.dat"),
        ("pipe", "neither a file"),
    ],
)
def test_a_source_that_is_not_there(home, tmp_path, source, said):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "movies.csv").write_text("movieId,title\n")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match=said.replace("*", r"\*")):
        ingest(home, datasets.load_dataset("ml-1m", tmp_path), [tmp_path / source], "run")
    assert not home.root.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission(home, tmp_path):
    (path := tmp_path / "ratings.csv").write_bytes(CSV)
    path.chmod(0)
    with pytest.raises(InputError, match="cannot be read"):
        ingest(home, datasets.load_dataset("ml-1m", tmp_path), [path], "run")


def test_absent_raw_files_are_described(tmp_path):
    home = Home(tmp_path / "var", "ml-100k")
    dataset = datasets.load_dataset("ml-100k", tmp_path)
    with pytest.raises(InputError) as error:
        ingest(home, dataset, [], "run")
    assert str(error.value) == describe_expected_sources(home, dataset)
    for part in (
        str(home.landing),
        "u.data",
        dataset.urls[0],
        dataset.licence,
        dataset.sha256["u.data"],
        "--source",
    ):
        assert part in str(error.value)
    assert not home.root.exists()


def test_a_file_that_is_no_warehouse(home, tmp_path):
    home.folder.mkdir(parents=True)
    home.warehouse.write_bytes(b"no database" * 1000)
    (path := tmp_path / "ratings.csv").write_bytes(CSV)
    with pytest.raises(InputError, match="cannot be opened"):
        ingest(home, datasets.load_dataset("ml-1m", tmp_path), [Path(path)], "run")
