"""Logs that change under their names: what replaces what, and that the tables come out as from nothing."""

import gzip
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from oneclass.tasks import datasets
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.settings import IngestSettings
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home
from tests.conftest import query_rows
from tests.tasks.ingest.test_ingest_formats import pack_members
from tests.tasks.ingest.test_ingest_stage import REPOSITORY, write_csv

REFUSE, ADD = IngestSettings(changed_file="refuse"), IngestSettings(changed_file="add")
EVENTS = "select user_id, item_id, value, file_id, line_number from raw.events order by all"
ARRIVALS = """
    select name, outcome, events, rejects, events_before, rejects_before from operations.arrivals
    where run_id = '{}' order by all
"""


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return datasets.load_dataset("ml-1m", tmp_path).model_copy(update={"max_reject_share": 0.5})


def time_arrival(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["user_id,item_id,rating,timestamp", *lines]) + "\n")
    return path


def load_curated(home: Home, dataset: Dataset) -> list[tuple]:
    binarize(home, BinarizeSettings(threshold=4), "run")
    return query_rows(home, "from curated.interactions order by user_index, item_index")


def test_a_changed_file_replaces_its_events_and_is_reported(home, dataset, tmp_path, caplog):
    one, two = write_csv(tmp_path / "one.csv", "a,x,5", "a,y,4", "broken"), write_csv(tmp_path / "two.csv", "b,x,5")
    ingest(home, dataset, [one, two], "run-1")
    write_csv(one, "a,x,5", "c,z,5", "c,y,2")  # the like of y was taken back, a line was mended, two were added
    with caplog.at_level(logging.INFO, "oneclass.tasks.ingest"):
        result = ingest(home, dataset, [one, two], "run-2")
    assert (result.new, result.changed, result.skipped) == ((str(one),), (str(one),), (str(two),))
    assert (result.events, result.events_before, result.total_events, result.file_ids) == (3, 2, 4, (1, 2))
    assert query_rows(home, EVENTS) == [
        ("a", "x", 5, 1, 2), ("b", "x", 5, 2, 2), ("c", "y", 2, 1, 4), ("c", "z", 5, 1, 3)
    ]  # fmt: skip
    assert query_rows(home, "from raw.rejects") == []
    assert query_rows(home, ARRIVALS.format("run-2")) == [(str(one), "changed", 3, 0, 2, 1)]
    assert f"{one}: changed under its name; 2 earlier events were replaced by 3" in caplog.text


@pytest.mark.slow
def test_what_changed_comes_out_as_from_nothing(home, dataset, tmp_path):
    early, late, third = tmp_path / "b.csv", tmp_path / "a.csv", tmp_path / "c.csv"
    time_arrival(early, "u,x,5,1000000000", "v,y,5,1000000001", "w,z,5,1000000002")
    time_arrival(late, "w,x,5,1000000003", "u,x,4,1000000004")
    time_arrival(third, "t,x,5,1000000005")
    for night, paths in enumerate(([early], [early, late], [early, late, third])):
        ingest(home, dataset, paths, f"run-{night}")
    # Taken back, come late with an earlier date, and in another order.
    time_arrival(early, "w,z,5,1000000002", "u,x,3,1000000000", "w,x,5,900000000", "s,y,5,1000000009")
    ingest(home, dataset, [early, late, third], "run-4")
    fresh = Home(tmp_path / "fresh", "small", home.limits)
    ingest(fresh, dataset, [early, late, third], "run")
    assert load_curated(home, dataset) == load_curated(fresh, dataset)
    for table in ("raw.events", "raw.rejects"):
        assert query_rows(home, f"from {table} order by all") == query_rows(fresh, f"from {table} order by all")
    files = "select file_id, path, sha256, bytes, events, rejects from operations.log_files order by 1"
    assert query_rows(home, files) == query_rows(fresh, files)
    assert query_rows(
        home, "select first_at::varchar from curated.interactions where (user_id, item_id) = ('w', 'x')"
    ) == [("1998-07-09 16:00:00",)]


@pytest.mark.slow
@pytest.mark.parametrize("spelt", [os.path.relpath, os.path.abspath, lambda path: path.parent / ".." / path.parts[-2]])
def test_a_name_is_the_same_however_the_path_is_spelt(home, dataset, tmp_path, spelt):
    path = write_csv(tmp_path / "logs" / "ratings-1.csv", "a,x,5")
    ingest(home, dataset, [path], "run-1")
    write_csv(path, "b,y,5")
    assert ingest(home, dataset, [spelt(path)], "run-2").total_events == 1


def test_the_same_base_name_elsewhere_is_another_log(home, dataset, tmp_path):
    ingest(home, dataset, [write_csv(tmp_path / "may" / "ratings.csv", "a,x,5")], "run-1")
    assert ingest(home, dataset, [write_csv(tmp_path / "june" / "ratings.csv", "b,y,5")], "run-2").total_events == 2


def test_a_home_may_be_moved(home, dataset, tmp_path):
    write_csv(home.landing / "ratings.csv", "a,x,5")
    ingest(home, dataset, [], "run-1")
    home.root.rename(tmp_path / "elsewhere")
    moved = Home(tmp_path / "elsewhere", home.dataset, home.limits)
    write_csv(moved.landing / "ratings.csv", "a,x,5", "b,y,5")
    assert ingest(moved, dataset, [], "run-2").total_events == 2


def test_members_of_an_archive_are_replaced_one_by_one(home, tmp_path):
    dataset, path = datasets.load_dataset("netflix", tmp_path), tmp_path / "training_set.tar"
    path.write_bytes(pack_members({"mv_1.txt": b"1:\n10,4,2004-01-01\n", "mv_2.txt": b"2:\n10,4,2004-01-01\n"}))
    ingest(home, dataset, [path], "run-1")
    path.write_bytes(pack_members({"mv_1.txt": b"1:\n10,4,2004-01-01\n", "mv_2.txt": b"2:\n11,5,2004-01-01\n"}))
    result = ingest(home, dataset, [path], "run-2")
    assert result.changed == (f"{path}/mv_2.txt",)
    assert query_rows(home, "select user_id, item_id, file_id from raw.events order by 2") == [
        ("10", "1", 1),
        ("11", "2", 2),
    ]


def test_a_renamed_log_is_not_replaced_by_its_successor(home, dataset):
    write_csv(home.landing / "ratings.csv", "a,x,5")
    ingest(home, dataset, [], "run-1")
    (home.landing / "ratings.csv").rename(home.landing / "ratings.1.csv")
    write_csv(home.landing / "ratings.csv", "b,y,5")
    assert ingest(home, dataset, [], "run-2").total_events == 2


def test_a_file_that_became_a_copy_of_another_leaves_no_events_of_its_own(home, dataset, tmp_path):
    one, two = write_csv(tmp_path / "one.csv", "a,x,5"), write_csv(tmp_path / "two.csv", "b,y,5")
    ingest(home, dataset, [one, two], "run-1")
    write_csv(one, "b,y,5")
    result = ingest(home, dataset, [one, two], "run-2")
    assert (result.changed, result.file_ids, result.total_events) == ((str(one),), (2, 2), 1)
    assert query_rows(home, ARRIVALS.format("run-2")) == [(str(one), "withdrawn", 0, 0, 1, 0)]


def test_a_changed_file_is_refused_where_the_setting_says_so(home, dataset, tmp_path):
    path = write_csv(tmp_path / "one.csv", "a,x,5")
    ingest(home, dataset, [path], "run-1", REFUSE)
    write_csv(path, "a,x,5", "b,y,5")
    with pytest.raises(InputError, match="one.csv: has other bytes .* 1 events.*ingest.changed_file"):
        ingest(home, dataset, [path], "run-2", REFUSE)
    assert query_rows(home, EVENTS) == [("a", "x", 5, 1, 2)]


def test_a_changed_file_is_added_where_the_setting_says_so_and_replaced_whole_later(home, dataset, tmp_path):
    path = write_csv(tmp_path / "one.csv", "a,x,5")
    ingest(home, dataset, [path], "run-1", ADD)
    write_csv(path, "a,x,5", "b,y,5")
    result = ingest(home, dataset, [path], "run-2", ADD)
    assert (result.changed, result.total_events, result.file_ids) == ((), 3, (2,))
    write_csv(path, "c,z,5")
    result = ingest(home, dataset, [path], "run-3")
    assert (result.events_before, result.total_events, result.file_ids) == (3, 1, (1,))


def test_a_warehouse_from_before_names_were_kept(home, dataset, tmp_path):
    path, landed = write_csv(tmp_path / "one.csv", "a,x,5"), write_csv(home.landing / "ratings.csv", "b,x,5")
    ingest(home, dataset, [path, landed], "run-1")
    with warehouse.open_warehouse(home) as connection:
        connection.execute("drop table operations.arrivals")
        connection.execute("update operations.schema_version set statements = 'of an earlier program'")
    write_csv(path, "a,y,5")
    write_csv(landed, "b,y,5")
    ingest(home, dataset, [path], "run-2")
    ingest(home, dataset, [], "run-3")
    assert query_rows(home, "select item_id, file_id from raw.events order by 2") == [("y", 1), ("y", 2)]


def test_a_night_is_a_run_that_reads_the_landing_folder_and_adds_to_the_events(home, dataset, tmp_path):
    path, landed = write_csv(tmp_path / "one.csv", "a,x,5"), write_csv(home.landing / "ratings.csv", "b,x,5")
    ingest(home, dataset, [path], "named")
    ingest(home, dataset, [], "night")
    ingest(home, dataset, [], "replacing", replace=True)
    write_csv(landed, "b,y,5")
    ingest(home, dataset, [], "next")
    assert query_rows(home, "select distinct run_id from operations.nights order by all") == [("next",), ("night",)]


KILLED = """
import os, signal, sys
from pathlib import Path
from oneclass.tasks import datasets
from oneclass.tasks.ingest import file_registry, stage
from oneclass.tasks.stores.home import Home

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

file_registry.record_changes = die
root = Path(sys.argv[1])
stage.ingest(Home(root, "small"), datasets.load_dataset("ml-1m", root), [sys.argv[2]], "run-2")
"""


@pytest.mark.slow
def test_a_run_that_is_killed_while_it_replaces_leaves_the_old(home, dataset, tmp_path):
    path = write_csv(tmp_path / "ratings.csv", *[f"{user},x,5" for user in range(50_000)])
    ingest(home, dataset, [path], "run-1")
    write_csv(path, "a,y,5")
    command = [sys.executable, "-c", KILLED, str(home.root), str(path)]
    assert subprocess.run(command, cwd=REPOSITORY, check=False).returncode == -signal.SIGKILL
    assert query_rows(home, "select count(*), min(item_id), max(item_id) from raw.events") == [(50_000, "x", "x")]
    assert ingest(home, dataset, [path], "run-3").total_events == 1


def test_the_same_content_packed_and_plain_counts_once(home, dataset, tmp_path, caplog):
    plain = write_csv(tmp_path / "orders.csv", "a,x,5", "b,y,4")
    (archive := tmp_path / "orders.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    (other := tmp_path / "copy.csv").write_bytes(plain.read_bytes())
    with caplog.at_level(logging.INFO):
        result = ingest(home, dataset, [archive, plain, other], "run")
    assert (result.total_events, result.new, result.skipped) == (2, (str(archive),), (str(plain), str(other)))
    assert result.file_ids == (1, 1, 1) and f"{plain} and 1 more: skipped" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("packed_first", [True, False])
def test_content_that_comes_again_packed_otherwise_counts_once(home, dataset, tmp_path, caplog, packed_first):
    plain = write_csv(tmp_path / "orders.csv", "a,x,5", "b,y,4")
    (archive := tmp_path / "orders.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    first, second = (archive, plain) if packed_first else (plain, archive)
    ingest(home, dataset, [first], "run-1")
    before = query_rows(home, EVENTS)
    with caplog.at_level(logging.INFO):
        result = ingest(home, dataset, [second], "run-2")
    assert (result.new, result.skipped, result.file_ids) == ((), (str(second),), (1,))
    assert (
        query_rows(home, EVENTS) == before and f"{second}: skipped, because the warehouse holds the same" in caplog.text
    )


def test_a_file_that_is_packed_anew_under_its_name_keeps_its_events(home, dataset, tmp_path):
    content = write_csv(tmp_path / "orders.csv", "a,x,5", "b,y,4").read_bytes()
    (archive := tmp_path / "orders.csv.gz").write_bytes(gzip.compress(content, 9, mtime=1))
    ingest(home, dataset, [archive], "run-1")
    archive.write_bytes(gzip.compress(content, 1, mtime=2))
    result = ingest(home, dataset, [archive], "run-2")
    assert (result.total_events, result.new, result.changed, result.skipped) == (2, (), (), (str(archive),))
    archive.write_bytes(gzip.compress(content + b"c,z,3\n"))
    assert ingest(home, dataset, [archive], "run-3").total_events == 3


def test_a_name_that_goes_over_to_other_content_while_its_own_comes_packed(home, dataset, tmp_path):
    plain = write_csv(tmp_path / "orders.csv", "a,x,5", "b,y,4")
    ingest(home, dataset, [plain], "run-1")
    (archive := tmp_path / "orders.1.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    write_csv(plain, "c,z,3")
    result = ingest(home, dataset, [plain, archive], "run-2")
    assert (result.total_events, result.new, result.skipped) == (3, (str(plain),), (str(archive),))


def test_logs_of_an_older_home_are_known_by_their_bytes(home, dataset, tmp_path):
    plain = write_csv(tmp_path / "orders.csv", "a,x,5", "b,y,4")
    other = write_csv(tmp_path / "other.csv", "c,z,3")
    (packed_other := tmp_path / "other.csv.gz").write_bytes(gzip.compress(other.read_bytes()))
    ingest(home, dataset, [plain, packed_other], "run-1")
    with warehouse.open_warehouse(home) as connection:
        connection.execute("update operations.log_files set content_sha256 = null")
    (archive := tmp_path / "orders.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    assert ingest(home, dataset, [archive, packed_other], "run-2").total_events == 3  # of plain text the bytes are it


def test_ids_in_another_encoding_are_quarantined_with_the_encoding_to_state(home, dataset):
    lines = "user_id,item_id,rating\n" + "".join(f"Müller{n},Käse,5\n" for n in range(20))
    home.landing.mkdir(parents=True)
    (home.landing / "ratings.csv").write_bytes(lines.encode("windows-1252"))
    write_csv(home.landing / "ratings-2.csv", "a,x,5")
    assert ingest(home, dataset, [], "run-1").set_aside == (str(home.landing / "ratings.csv"),)
    note = (home.landing / "quarantine" / "ratings.csv.why.txt").read_text()
    [encoding] = re.findall('encoding = "(.*)"', note)
    shutil.move(home.landing / "quarantine" / "ratings.csv", home.landing)
    result = ingest(home, dataset.model_copy(update={"encoding": encoding}), [], "run-2")
    items = query_rows(home, "select distinct item_id from raw.events where item_id <> 'x'")
    assert (result.events, items) == (20, [("Käse",)])


PADDED = {
    "log.csv": b"user_id,item_id\n" + b"".join(b"u%d , i%d\n" % (n, n) for n in range(5)) + b"u9,i9\n",
    "log.jsonl": b'{"user_id": " u0", "item_id": "i0 "}\n{"user_id": "u1 ", "item_id": " i1"}\n',
}


@pytest.mark.parametrize("name", [*PADDED, "log.parquet"])
def test_blanks_around_ids_are_dropped(home, tmp_path, name):
    path = tmp_path / name
    if name == "log.parquet":
        pl.DataFrame({"user_id": ["  u0", "u1 "], "item_id": [" i0", " i1 "]}).write_parquet(path)
    else:
        path.write_bytes(PADDED[name])
    ingest(home, Dataset(name="mine"), [path], "run")
    assert query_rows(home, "select user_id, item_id from raw.events order by all limit 2") == [
        ("u0", "i0"),
        ("u1", "i1"),
    ]


def test_blanks_around_users_of_netflix_are_dropped(home, tmp_path):
    path = tmp_path / "mv_0000001.txt"
    path.write_text("1:\n 5,3,2004-01-01\n6 ,4,2004-01-01\n7,4,2004-01-01\n  ,4,2004-01-01\n")
    dataset = datasets.load_dataset("netflix", tmp_path).model_copy(update={"max_reject_share": 0.5})
    ingest(home, dataset, [path], "run")
    assert query_rows(home, "select user_id from raw.events order by all") == [("5",), ("6",), ("7",)]
    assert query_rows(home, "select reason from raw.rejects") == [("names no user",)]
