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
from tests.conftest import rows
from tests.tasks.ingest.test_ingest_formats import packed
from tests.tasks.ingest.test_ingest_stage import REPOSITORY, csv

REFUSE, ADD = IngestSettings(changed_file="refuse"), IngestSettings(changed_file="add")
EVENTS = "select user_id, item_id, value, file_id, line_number from raw.events order by all"
ARRIVALS = """
    select name, outcome, events, rejects, events_before, rejects_before from operations.arrivals
    where run_id = '{}' order by all
"""


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return datasets.load_dataset("ml-1m", tmp_path).model_copy(update={"max_reject_share": 0.5})


def timed(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["user_id,item_id,rating,timestamp", *lines]) + "\n")
    return path


def curated(home: Home, dataset: Dataset) -> list[tuple]:
    binarize(home, BinarizeSettings(threshold=4), "run")
    return rows(home, "from curated.interactions order by user_index, item_index")


def test_a_changed_file_replaces_its_events_and_is_reported(home, dataset, tmp_path, caplog):
    one, two = csv(tmp_path / "one.csv", "a,x,5", "a,y,4", "broken"), csv(tmp_path / "two.csv", "b,x,5")
    ingest(home, dataset, [one, two], "run-1")
    csv(one, "a,x,5", "c,z,5", "c,y,2")  # the like of y was taken back, a line was mended, two were added
    with caplog.at_level(logging.INFO, "oneclass.tasks.ingest"):
        result = ingest(home, dataset, [one, two], "run-2")
    assert (result.new, result.changed, result.skipped) == ((str(one),), (str(one),), (str(two),))
    assert (result.events, result.events_before, result.total_events, result.file_ids) == (3, 2, 4, (1, 2))
    assert rows(home, EVENTS) == [
        ("a", "x", 5, 1, 2), ("b", "x", 5, 2, 2), ("c", "y", 2, 1, 4), ("c", "z", 5, 1, 3)
    ]  # fmt: skip
    assert rows(home, "from raw.rejects") == []
    assert rows(home, ARRIVALS.format("run-2")) == [(str(one), "changed", 3, 0, 2, 1)]
    assert f"{one}: changed under its name; 2 earlier events were replaced by 3" in caplog.text


@pytest.mark.slow
def test_what_changed_comes_out_as_from_nothing(home, dataset, tmp_path):
    early, late, third = tmp_path / "b.csv", tmp_path / "a.csv", tmp_path / "c.csv"
    timed(early, "u,x,5,1000000000", "v,y,5,1000000001", "w,z,5,1000000002")
    timed(late, "w,x,5,1000000003", "u,x,4,1000000004")
    timed(third, "t,x,5,1000000005")
    for night, paths in enumerate(([early], [early, late], [early, late, third])):
        ingest(home, dataset, paths, f"run-{night}")
    # Taken back, come late with an earlier date, and in another order.
    timed(early, "w,z,5,1000000002", "u,x,3,1000000000", "w,x,5,900000000", "s,y,5,1000000009")
    ingest(home, dataset, [early, late, third], "run-4")
    fresh = Home(tmp_path / "fresh", "small", home.limits)
    ingest(fresh, dataset, [early, late, third], "run")
    assert curated(home, dataset) == curated(fresh, dataset)
    for table in ("raw.events", "raw.rejects"):
        assert rows(home, f"from {table} order by all") == rows(fresh, f"from {table} order by all")
    files = "select file_id, path, sha256, bytes, events, rejects from operations.log_files order by 1"
    assert rows(home, files) == rows(fresh, files)
    assert rows(home, "select first_at::varchar from curated.interactions where (user_id, item_id) = ('w', 'x')") == [
        ("1998-07-09 16:00:00",)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("spelt", [os.path.relpath, os.path.abspath, lambda path: path.parent / ".." / path.parts[-2]])
def test_a_name_is_the_same_however_the_path_is_spelt(home, dataset, tmp_path, spelt):
    path = csv(tmp_path / "logs" / "ratings-1.csv", "a,x,5")
    ingest(home, dataset, [path], "run-1")
    csv(path, "b,y,5")
    assert ingest(home, dataset, [spelt(path)], "run-2").total_events == 1


def test_the_same_base_name_elsewhere_is_another_log(home, dataset, tmp_path):
    ingest(home, dataset, [csv(tmp_path / "may" / "ratings.csv", "a,x,5")], "run-1")
    assert ingest(home, dataset, [csv(tmp_path / "june" / "ratings.csv", "b,y,5")], "run-2").total_events == 2


def test_a_home_may_be_moved(home, dataset, tmp_path):
    csv(home.landing / "ratings.csv", "a,x,5")
    ingest(home, dataset, [], "run-1")
    home.root.rename(tmp_path / "elsewhere")
    moved = Home(tmp_path / "elsewhere", home.dataset, home.limits)
    csv(moved.landing / "ratings.csv", "a,x,5", "b,y,5")
    assert ingest(moved, dataset, [], "run-2").total_events == 2


def test_members_of_an_archive_are_replaced_one_by_one(home, tmp_path):
    dataset, path = datasets.load_dataset("netflix", tmp_path), tmp_path / "training_set.tar"
    path.write_bytes(packed({"mv_1.txt": b"1:\n10,4,2004-01-01\n", "mv_2.txt": b"2:\n10,4,2004-01-01\n"}))
    ingest(home, dataset, [path], "run-1")
    path.write_bytes(packed({"mv_1.txt": b"1:\n10,4,2004-01-01\n", "mv_2.txt": b"2:\n11,5,2004-01-01\n"}))
    result = ingest(home, dataset, [path], "run-2")
    assert result.changed == (f"{path}/mv_2.txt",)
    assert rows(home, "select user_id, item_id, file_id from raw.events order by 2") == [("10", "1", 1), ("11", "2", 2)]


def test_a_renamed_log_is_not_replaced_by_its_successor(home, dataset):
    csv(home.landing / "ratings.csv", "a,x,5")
    ingest(home, dataset, [], "run-1")
    (home.landing / "ratings.csv").rename(home.landing / "ratings.1.csv")
    csv(home.landing / "ratings.csv", "b,y,5")
    assert ingest(home, dataset, [], "run-2").total_events == 2


def test_a_file_that_became_a_copy_of_another_leaves_no_events_of_its_own(home, dataset, tmp_path):
    one, two = csv(tmp_path / "one.csv", "a,x,5"), csv(tmp_path / "two.csv", "b,y,5")
    ingest(home, dataset, [one, two], "run-1")
    csv(one, "b,y,5")
    result = ingest(home, dataset, [one, two], "run-2")
    assert (result.changed, result.file_ids, result.total_events) == ((str(one),), (2, 2), 1)
    assert rows(home, ARRIVALS.format("run-2")) == [(str(one), "withdrawn", 0, 0, 1, 0)]


def test_a_changed_file_is_refused_where_the_setting_says_so(home, dataset, tmp_path):
    path = csv(tmp_path / "one.csv", "a,x,5")
    ingest(home, dataset, [path], "run-1", REFUSE)
    csv(path, "a,x,5", "b,y,5")
    with pytest.raises(InputError, match="one.csv: has other bytes .* 1 events.*ingest.changed_file"):
        ingest(home, dataset, [path], "run-2", REFUSE)
    assert rows(home, EVENTS) == [("a", "x", 5, 1, 2)]


def test_a_changed_file_is_added_where_the_setting_says_so_and_replaced_whole_later(home, dataset, tmp_path):
    path = csv(tmp_path / "one.csv", "a,x,5")
    ingest(home, dataset, [path], "run-1", ADD)
    csv(path, "a,x,5", "b,y,5")
    result = ingest(home, dataset, [path], "run-2", ADD)
    assert (result.changed, result.total_events, result.file_ids) == ((), 3, (2,))
    csv(path, "c,z,5")
    result = ingest(home, dataset, [path], "run-3")
    assert (result.events_before, result.total_events, result.file_ids) == (3, 1, (1,))


def test_a_warehouse_from_before_names_were_kept(home, dataset, tmp_path):
    path, landed = csv(tmp_path / "one.csv", "a,x,5"), csv(home.landing / "ratings.csv", "b,x,5")
    ingest(home, dataset, [path, landed], "run-1")
    with warehouse.open_warehouse(home) as connection:
        connection.execute("drop table operations.arrivals")
        connection.execute("update operations.schema_version set statements = 'of an earlier program'")
    csv(path, "a,y,5")
    csv(landed, "b,y,5")
    ingest(home, dataset, [path], "run-2")
    ingest(home, dataset, [], "run-3")
    assert rows(home, "select item_id, file_id from raw.events order by 2") == [("y", 1), ("y", 2)]


def test_a_night_is_a_run_that_reads_the_landing_folder_and_adds_to_the_events(home, dataset, tmp_path):
    path, landed = csv(tmp_path / "one.csv", "a,x,5"), csv(home.landing / "ratings.csv", "b,x,5")
    ingest(home, dataset, [path], "named")
    ingest(home, dataset, [], "night")
    ingest(home, dataset, [], "replacing", replace=True)
    csv(landed, "b,y,5")
    ingest(home, dataset, [], "next")
    assert rows(home, "select distinct run_id from operations.nights order by all") == [("next",), ("night",)]


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
    path = csv(tmp_path / "ratings.csv", *[f"{user},x,5" for user in range(50_000)])
    ingest(home, dataset, [path], "run-1")
    csv(path, "a,y,5")
    command = [sys.executable, "-c", KILLED, str(home.root), str(path)]
    assert subprocess.run(command, cwd=REPOSITORY, check=False).returncode == -signal.SIGKILL
    assert rows(home, "select count(*), min(item_id), max(item_id) from raw.events") == [(50_000, "x", "x")]
    assert ingest(home, dataset, [path], "run-3").total_events == 1


def test_the_same_content_packed_and_plain_counts_once(home, dataset, tmp_path, caplog):
    plain = csv(tmp_path / "orders.csv", "a,x,5", "b,y,4")
    (archive := tmp_path / "orders.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    (other := tmp_path / "copy.csv").write_bytes(plain.read_bytes())
    with caplog.at_level(logging.INFO):
        result = ingest(home, dataset, [archive, plain, other], "run")
    assert (result.total_events, result.new, result.skipped) == (2, (str(archive),), (str(plain), str(other)))
    assert result.file_ids == (1, 1, 1) and f"{plain} and 1 more: skipped" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("packed_first", [True, False])
def test_content_that_comes_again_packed_otherwise_counts_once(home, dataset, tmp_path, caplog, packed_first):
    plain = csv(tmp_path / "orders.csv", "a,x,5", "b,y,4")
    (archive := tmp_path / "orders.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    first, second = (archive, plain) if packed_first else (plain, archive)
    ingest(home, dataset, [first], "run-1")
    before = rows(home, EVENTS)
    with caplog.at_level(logging.INFO):
        result = ingest(home, dataset, [second], "run-2")
    assert (result.new, result.skipped, result.file_ids) == ((), (str(second),), (1,))
    assert rows(home, EVENTS) == before and f"{second}: skipped, because the warehouse holds the same" in caplog.text


def test_a_file_that_is_packed_anew_under_its_name_keeps_its_events(home, dataset, tmp_path):
    content = csv(tmp_path / "orders.csv", "a,x,5", "b,y,4").read_bytes()
    (archive := tmp_path / "orders.csv.gz").write_bytes(gzip.compress(content, 9, mtime=1))
    ingest(home, dataset, [archive], "run-1")
    archive.write_bytes(gzip.compress(content, 1, mtime=2))
    result = ingest(home, dataset, [archive], "run-2")
    assert (result.total_events, result.new, result.changed, result.skipped) == (2, (), (), (str(archive),))
    archive.write_bytes(gzip.compress(content + b"c,z,3\n"))
    assert ingest(home, dataset, [archive], "run-3").total_events == 3


def test_a_name_that_goes_over_to_other_content_while_its_own_comes_packed(home, dataset, tmp_path):
    plain = csv(tmp_path / "orders.csv", "a,x,5", "b,y,4")
    ingest(home, dataset, [plain], "run-1")
    (archive := tmp_path / "orders.1.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    csv(plain, "c,z,3")
    result = ingest(home, dataset, [plain, archive], "run-2")
    assert (result.total_events, result.new, result.skipped) == (3, (str(plain),), (str(archive),))


def test_logs_of_an_older_home_are_known_by_their_bytes(home, dataset, tmp_path):
    plain = csv(tmp_path / "orders.csv", "a,x,5", "b,y,4")
    other = csv(tmp_path / "other.csv", "c,z,3")
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
    csv(home.landing / "ratings-2.csv", "a,x,5")
    assert ingest(home, dataset, [], "run-1").set_aside == (str(home.landing / "ratings.csv"),)
    note = (home.landing / "quarantine" / "ratings.csv.why.txt").read_text()
    [encoding] = re.findall('encoding = "(.*)"', note)
    shutil.move(home.landing / "quarantine" / "ratings.csv", home.landing)
    result = ingest(home, dataset.model_copy(update={"encoding": encoding}), [], "run-2")
    items = rows(home, "select distinct item_id from raw.events where item_id <> 'x'")
    assert (result.events, items) == (20, [("Käse",)])


PADDED = {
    "log.csv": b"user_id,item_id\n" + b"".join(b"u%d , i%d\n" % (n, n) for n in range(5)) + b"u9,i9\n",
    "log.jsonl": b'{"user_id": " u0", "item_id": "i0 "}\n{"user_id": "u1 ", "item_id": " i1"}\n',
}


@pytest.mark.parametrize("name", [*PADDED, "log.parquet"])
def test_a_log_most_of_whose_ids_have_outer_blanks_is_named(home, tmp_path, caplog, name):
    path = tmp_path / name
    if name == "log.parquet":
        pl.DataFrame({"user_id": ["  u0", "u1 "], "item_id": [" i0", " i1 "]}).write_parquet(path)
    else:
        path.write_bytes(PADDED[name])
    ingest(home, Dataset(name="mine"), [path], "run")
    for role in ("user", "item"):
        assert f"{path}: over half of the ids of the {role} have blanks around them" in caplog.text
    assert rows(home, "select user_id, item_id from raw.events order by all limit 2") == [("u0", "i0"), ("u1", "i1")]


def test_a_few_outer_blanks_are_dropped_in_silence(home, tmp_path, caplog):
    path = tmp_path / "mv_0000001.txt"
    path.write_text("1:\n 5,3,2004-01-01\n6 ,4,2004-01-01\n7,4,2004-01-01\n  ,4,2004-01-01\n")
    dataset = datasets.load_dataset("netflix", tmp_path).model_copy(update={"max_reject_share": 0.5})
    ingest(home, dataset, [path], "run")
    assert rows(home, "select user_id from raw.events order by all") == [("5",), ("6",), ("7",)]
    assert rows(home, "select reason from raw.rejects") == [("names no user",)]
    assert "blanks" not in caplog.text
