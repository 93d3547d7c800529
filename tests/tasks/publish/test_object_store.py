"""The publication in an object store, of files and of the S3 protocol: readers see one publication or the other."""

import hashlib
import json
import os
import threading

import duckdb
import fsspec
import polars as pl
import pytest
from pydantic import ValidationError

from oneclass.tasks.errors import InputError
from oneclass.tasks.publish.object_store import check_object_store, copy_to_object_store
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.stores import publications, warehouse
from oneclass.tasks.stores.home import Home
from tests import s3_server
from tests.typed import indented_blocks, read_page

ROWS = 20_000


def publish_lists(home: Home, run_id: str, keep: int = 2) -> None:
    """Publish lists that have the run's id in every row."""
    folder = publications.create_publication(home, run_id)
    rows = pl.DataFrame({"user_id": [str(n) for n in range(ROWS)], "run": [run_id] * ROWS})
    for name in ("recommendations.parquet", "lists.parquet"):
        rows.write_parquet(folder / name)
    (folder / "contract.odcs.yaml").write_text(f"id: {run_id}\n")
    (folder / "evaluation.csv").write_text("is not copied\n")
    publications.activate_publication(home, folder, {"run_id": run_id, "fits": []}, keep)


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "var", "small")
    publish_lists(home, "first")
    return home


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    pytest.importorskip("moto", reason="no server of the S3 protocol is installed")
    with s3_server.start_s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(params=["file", "s3"])
def url(request, tmp_path):
    """The URL of an empty place."""
    if request.param == "file":
        return f"file://{tmp_path}/lists"
    return f"{request.getfixturevalue('server').url}/{tmp_path.name}"


def read_object(url: str, name: str) -> bytes:
    """Read a file of the data set."""
    system, root = fsspec.core.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
    return system.cat_file(f"{root}/small/{name}")


def runs_of(url: str) -> set[str]:
    """Read the pointer, then a list that it names, and return the runs that both have in them."""
    pointer = json.loads(read_object(url, "current.json"))
    rows = pl.read_parquet(read_object(url, f"{pointer['folder']}/recommendations.parquet"))
    assert len(rows) == ROWS
    return {pointer["run_id"], *rows["run"].unique()}


def files_of(url: str) -> set[str]:
    """List every file of the data set."""
    system, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
    return {path.rpartition(f"{root}/small/")[2] for path in system.find(f"{root}/small")}


def load_alarms(home: Home) -> list[str]:
    with warehouse.open_warehouse(home) as connection:
        return [text for (text,) in connection.execute("select alarm from operations.alarms").fetchall()]


def copied_files(run_id: str) -> set[str]:
    names = "recommendations.parquet", "lists.parquet", "contract.odcs.yaml"
    return {f"publications/{run_id}/{name}" for name in names}


def test_the_files_are_those_of_the_publication_and_old_ones_go_with_those_of_the_home(home, url):
    settings = PublishSettings(object_store=url)
    copy_to_object_store(home, "night", settings)
    pointer = json.loads(read_object(url, "current.json"))
    assert (pointer["dataset"], pointer["run_id"]) == ("small", "first")
    for name, facts in pointer["files"].items():
        copied = read_object(url, f"{pointer['folder']}/{name}")
        assert copied == (home.published / name).read_bytes()
        assert facts == {"bytes": len(copied), "sha256": hashlib.sha256(copied).hexdigest()}
    assert files_of(url) == {"current.json", *copied_files("first")}
    publish_lists(home, "second")
    copy_to_object_store(home, "night", settings)
    assert runs_of(url) == {"second"}
    assert files_of(url) == {"current.json", *copied_files("first"), *copied_files("second")}
    publish_lists(home, "third")
    copy_to_object_store(home, "night", settings)
    assert files_of(url) == {"current.json", *copied_files("second"), *copied_files("third")}
    publications.switch_link(home, home.publications / "second")
    copy_to_object_store(home, "after a rollback", settings)
    assert runs_of(url) == {"second"} and load_alarms(home) == []


def test_the_documented_query_reads_the_current_publication(home, tmp_path):
    copy_to_object_store(home, "night", PublishSettings(object_store=f"file://{tmp_path}/lists"))
    [query] = [
        block
        for block in indented_blocks(read_page("docs/how-to/recommend.md"))
        if block.startswith("set variable shop")
    ]
    rows = duckdb.connect().execute(query.replace("s3://BUCKET/PREFIX/mine/", f"{tmp_path}/lists/small/")).fetchall()
    assert len(rows) == ROWS and {run for _, run in rows} == {"first"}


def test_a_reader_sees_one_publication_or_the_other(home, url):
    settings = PublishSettings(object_store=url)
    copy_to_object_store(home, "night", settings)
    seen, done, mixed = set(), threading.Event(), []

    def read_on():
        while not done.is_set():
            runs = runs_of(url)
            seen.update(runs)
            if len(runs) > 1:
                mixed.append(runs)

    reader = threading.Thread(target=read_on)
    reader.start()
    for run_id in ("second", "third", "fourth"):
        publish_lists(home, run_id, keep=9)
        copy_to_object_store(home, "night", settings)
    done.set()
    reader.join()
    assert not mixed and len(seen) >= 2


def test_a_publication_that_is_there_is_not_copied_again_unless_a_file_is_lost(home, tmp_path):
    settings = PublishSettings(object_store=f"file://{tmp_path}/lists")
    copied = tmp_path / "lists/small/publications/first"
    copy_to_object_store(home, "night", settings)
    before = (copied / "lists.parquet").stat().st_mtime_ns
    copy_to_object_store(home, "night", settings)
    assert (copied / "lists.parquet").stat().st_mtime_ns == before
    (copied / "recommendations.parquet").write_bytes(b"cut")
    copy_to_object_store(home, "night", settings)
    assert runs_of(settings.object_store) == {"first"} and load_alarms(home) == []


def test_what_fails_on_the_way_leaves_the_earlier_publication_and_is_an_alarm(home, tmp_path):
    settings = PublishSettings(object_store=f"file://{tmp_path}/lists")
    copy_to_object_store(home, "night", settings)
    publish_lists(home, "second")
    obstacle = tmp_path / "lists/small/publications/second"
    (obstacle / "contract.odcs.yaml").mkdir(parents=True)  # the last file cannot be written
    copy_to_object_store(home, "night", settings)
    [alarm] = load_alarms(home)
    assert "could not be brought up to date" in alarm
    assert json.loads(read_object(settings.object_store, "current.json"))["run_id"] == "first"
    assert publications.load_current(home)["run_id"] == "second"
    (obstacle / "contract.odcs.yaml").rmdir()
    copy_to_object_store(home, "next night", settings)
    assert runs_of(settings.object_store) == {"second"}


def test_a_damaged_file_is_not_copied(home, tmp_path):
    settings = PublishSettings(object_store=f"file://{tmp_path}/lists")
    copy_to_object_store(home, "night", settings)
    publish_lists(home, "second")
    (home.published.resolve() / "lists.parquet").write_bytes(b"damaged")
    copy_to_object_store(home, "night", settings)
    assert runs_of(settings.object_store) == {"first"}
    assert "lists.parquet" in load_alarms(home)[0]


def test_credentials_by_a_file_are_used_and_not_shown(home, server, tmp_path, monkeypatch):
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    for name in server.environment:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    options = tmp_path / "options.json"
    settings = PublishSettings(object_store=f"{server.url}/by-file", object_store_file=str(options))
    keys = {"key": "AKIA-of-the-shop", "secret": "s3cret/of+shop"}
    options.write_text(json.dumps({**keys, "endpoint_url": endpoint, "client_kwargs": {"region_name": "us-east-1"}}))
    copy_to_object_store(home, "night", settings)
    assert load_alarms(home) == []
    few = {"config_kwargs": {"retries": {"max_attempts": 0}, "connect_timeout": 2}}
    options.write_text(json.dumps({**keys, **few, "endpoint_url": "http://127.0.0.1:1/s3cret/of+shop"}))
    copy_to_object_store(home, "night", settings)
    [alarm] = load_alarms(home)
    assert "could not be brought up to date" in alarm and "s3cret" not in alarm and "AKIA" not in alarm


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"object_store": "s3://key:s3cret@bucket/a"}, "has a password in it"),
        ({"object_store": "bucket/a"}, "write it as s3://BUCKET/PREFIX"),
        ({"object_store": "ftps-or-so://bucket/a"}, "Protocol not known"),
        ({"object_store": "file:///a", "object_store_env": "ABSENT"}, "the environment variable ABSENT is not set"),
        ({"object_store": "file:///a", "object_store_env": "NO_JSON"}, "is no JSON object"),
    ],
)
def test_a_wrong_url_or_option_is_refused_before_a_run(given, message, monkeypatch):
    monkeypatch.setenv("NO_JSON", "s3cret")
    with pytest.raises(InputError, match=message) as refused:
        check_object_store(PublishSettings(**given))
    assert "s3cret" not in str(refused.value)


def test_settings_that_exclude_each_other_are_refused():
    with pytest.raises(ValidationError, match="give one of object_store_env"):
        PublishSettings(object_store="file:///a", object_store_env="A", object_store_block="b")
    with pytest.raises(ValidationError, match="object_store is not set"):
        PublishSettings(object_store_env="A")
