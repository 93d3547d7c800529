"""Objects of a bucket are landed once, by name and version, and none in part."""

import logging
from pathlib import Path

import duckdb
import pytest

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.object_source import land_objects
from oneclass.tasks.ingest.settings import IngestSettings
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores.home import Home
from tests import s3_server
from tests.killed_process import ends_before_change

HEADER = "user_id,item_id\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with s3_server.start_s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def bucket(server):
    if server.files.exists(server.url):
        server.files.rm(server.url, recursive=True)
    return server


def put_object(bucket: s3_server.Server, name: str, text: str) -> None:
    bucket.files.pipe_file(f"{bucket.url}/{name}", text.encode())


def list_landed(home: Home, url: str, **more) -> dict[str, str]:
    """The landing folder's files after new objects were landed."""
    dataset = Dataset(name="shop", source={"url": url}, **more)
    land_objects(home, dataset, dataset.source)
    return read_landed(home.landing)


def read_landed(landing: Path) -> dict[str, str]:
    files = (path for path in landing.rglob("[!.]*") if path.is_file())
    return {path.relative_to(landing).as_posix(): path.read_text() for path in files}


def test_new_and_changed_objects_are_landed_once(bucket, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    home = Home(tmp_path, "shop")
    put_object(bucket, "2026/a.csv", HEADER + "u,a\n")
    put_object(bucket, "b.csv", HEADER + "u,b\n")
    put_object(bucket, "_SUCCESS", "")
    put_object(bucket, ".hidden", "x")
    put_object(bucket, "notes.txt", "x")
    first = list_landed(home, bucket.url, files=["*.csv"])
    assert first == {"2026/a.csv": HEADER + "u,a\n", "b.csv": HEADER + "u,b\n"}
    (home.landing / "b.csv").unlink()
    put_object(bucket, "2026/a.csv", HEADER + "u,c\n")
    assert list_landed(home, bucket.url, files=["*.csv"]) == {"2026/a.csv": HEADER + "u,c\n"}
    assert "landed 1 of 2 objects" in caplog.text


def test_objects_reach_the_events_where_ingested_files_are_removed(bucket, tmp_path):
    home = Home(tmp_path, "shop")
    dataset = Dataset(name="shop", source={"url": bucket.url})
    settings = IngestSettings(keep_files="remove")
    put_object(bucket, "a.csv", HEADER + "u,a\nv,a\n")
    assert ingest(home, dataset, [], "1", settings).events == 2
    put_object(bucket, "b.csv", HEADER + "u,b\n")
    put_object(bucket, "a.csv", HEADER + "u,a\n")
    assert ingest(home, dataset, [], "2", settings).total_events == 2
    with duckdb.connect(str(home.warehouse), read_only=True) as connection:
        events = connection.execute("select user_id, item_id from raw.events order by all").fetchall()
    assert events == [("u", "a"), ("u", "b")]


def test_a_landing_that_is_killed_before_any_change_of_files_has_every_object_whole(tmp_path):
    (tmp_path / "bucket").mkdir()
    home, number, objects, whole = Home(tmp_path / "home", "shop"), 0, {}, False
    while not whole:
        number += 1
        for name in (f"{number}.csv", "same.csv"):
            objects[name] = HEADER + f"u{number},i\n" * 1000
            (tmp_path / "bucket" / name).write_text(objects[name])
        whole = ends_before_change(number, lambda: list_landed(home, f"file://{tmp_path}/bucket"))
        left = read_landed(home.landing) if home.landing.exists() else {}
        assert not [name for name, text in left.items() if text.count("\n") != 1001]
    assert number > 5 and left == objects


@pytest.mark.parametrize("url", ["s3://no-such-bucket-here/prefix", "nosuch://bucket"])
def test_a_url_that_cannot_be_read_is_explained(server, tmp_path, url):
    with pytest.raises(InputError, match=rf"^\[source\] url = '{url}'"):
        list_landed(Home(tmp_path, "shop"), url)
