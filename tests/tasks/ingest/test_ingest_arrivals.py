"""Logs that change under their names: what replaces what, and that the tables come out as from nothing."""

import gzip
import logging
import os
from pathlib import Path

import polars as pl
import pytest

from oneclass.tasks import datasets
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home
from tests.conftest import query_rows
from tests.tasks.ingest.conftest import count_events
from tests.tasks.ingest.test_ingest_stage import EVENTS, write_csv

ARRIVALS = """
    select name, outcome, events, rejects, events_before, rejects_before from operations.arrivals
    where run_id = '{}' order by all
"""


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return datasets.load_dataset("ml-1m", tmp_path).model_copy(update={"max_reject_share": 0.5})


def write_lines(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def load_curated(home: Home) -> list[tuple]:
    binarize(home, BinarizeSettings(threshold=4), "run")
    return query_rows(home, "from curated.interactions order by user_index, item_index")


def test_a_changed_file_replaces_its_events_and_is_reported(home, dataset, tmp_path, caplog):
    one, two = write_csv(tmp_path / "one.csv", "a,x,5", "a,y,4", "broken"), write_csv(tmp_path / "two.csv", "b,x,5")
    ingest(home, dataset, [one, two], "run-1")
    write_csv(one, "a,x,5", "c,z,5", "c,y,2")  # the like of y was taken back, a line was mended, two were added
    with caplog.at_level(logging.INFO, "oneclass.tasks.ingest"):
        logs = ingest(home, dataset, [one, two], "run-2")
    assert [(log.file_id, log.outcome) for log in logs] == [(1, "changed"), (2, "skipped")]
    assert query_rows(home, EVENTS) == [
        ("a", "x", 5, 1, 2), ("b", "x", 5, 2, 2), ("c", "y", 2, 1, 4), ("c", "z", 5, 1, 3)
    ]  # fmt: skip
    assert query_rows(home, "from raw.rejects") == []
    assert query_rows(home, ARRIVALS.format("run-2")) == [(str(one), "changed", 3, 0, 2, 1)]
    assert "1 new log with 3 events and 0 rejects; 1 known log skipped" in caplog.text


@pytest.mark.slow
def test_what_changed_comes_out_as_from_nothing(home, dataset, tmp_path):
    head = "user_id,item_id,rating,timestamp"
    early = write_lines(tmp_path / "b.csv", head, "u,x,5,1000000000", "v,y,5,1000000001", "w,z,5,1000000002")
    late = write_lines(tmp_path / "a.csv", head, "w,x,5,1000000003", "u,x,4,1000000004")
    third = write_lines(tmp_path / "c.csv", head, "t,x,5,1000000005")
    for night, paths in enumerate(([early], [early, late], [early, late, third])):
        ingest(home, dataset, paths, f"run-{night}")
    # Taken back, come late with an earlier date, and in another order.
    write_lines(early, head, "w,z,5,1000000002", "u,x,3,1000000000", "w,x,5,900000000", "s,y,5,1000000009")
    ingest(home, dataset, [early, late, third], "run-4")
    fresh = Home(tmp_path / "fresh", "small", home.limits)
    ingest(fresh, dataset, [early, late, third], "run")
    assert load_curated(home) == load_curated(fresh)
    first = "select first_at::varchar from curated.interactions where (user_id, item_id) = ('w', 'x')"
    assert query_rows(home, first) == [("1998-07-09 16:00:00",)]
    for rows in ("from raw.events", "select * exclude ingested_at from operations.log_files"):
        assert query_rows(home, f"{rows} order by all") == query_rows(fresh, f"{rows} order by all")


@pytest.mark.parametrize("spelt", [os.path.relpath, lambda path: path.parent / ".." / path.parts[-2] / path.name])
def test_a_name_is_the_same_however_the_path_is_spelt(home, dataset, tmp_path, spelt):
    path = write_csv(tmp_path / "logs" / "ratings.csv", "a,x,5")
    ingest(home, dataset, [path], "run-1")
    write_csv(path, "b,y,5")
    other = write_csv(tmp_path / "june" / "ratings.csv", "c,y,5")
    assert [log.outcome for log in ingest(home, dataset, [spelt(path), other], "run-2")] == ["changed", "new"]
    assert count_events(home) == 2


@pytest.mark.parametrize("with_names", [True, False])
def test_a_home_may_be_moved_or_be_of_before_names_were_kept(home, dataset, tmp_path, with_names):
    write_csv(home.landing / "ratings.csv", "a,x,5")
    ingest(home, dataset, [], "run-1")
    if with_names:
        home.root.rename(tmp_path / "elsewhere")
        home = Home(tmp_path / "elsewhere", home.dataset, home.limits)
    else:
        with warehouse.open_warehouse(home) as connection:
            connection.execute("drop table operations.arrivals")
            connection.execute("update operations.schema_version set statements = 'of an earlier program'")
    write_csv(home.landing / "ratings.csv", "a,x,5", "b,y,5")
    assert [log.outcome for log in ingest(home, dataset, [], "run-2")] == ["changed"]


def test_logs_that_are_rotated_and_deleted_in_the_end_keep_their_events(home, dataset):
    for night in range(5):
        for age in (2, 1, 0):
            if (path := home.landing / f"ratings.{age}.csv").exists():
                path.rename(home.landing / f"ratings.{age + 1}.csv")
        (home.landing / "ratings.3.csv").unlink(missing_ok=True)
        write_csv(home.landing / "ratings.0.csv", *[f"u{night},x,5"] * (night + 1))
        ingest(home, dataset, [], f"run-{night}")
        assert count_events(home) == sum(range(night + 2))


def test_a_file_that_became_a_copy_of_another_leaves_no_events_of_its_own(home, dataset, tmp_path):
    one, two = write_csv(tmp_path / "one.csv", "a,x,5"), write_csv(tmp_path / "two.csv", "b,y,5")
    ingest(home, dataset, [one, two], "run-1")
    write_csv(one, "b,y,5")
    logs = ingest(home, dataset, [one, two], "run-2")
    assert [(log.file_id, log.outcome) for log in logs] == [(2, "withdrawn"), (2, "skipped")]
    assert query_rows(home, ARRIVALS.format("run-2")) == [(str(one), "withdrawn", 0, 0, 1, 0)]
    assert count_events(home) == 1


@pytest.mark.parametrize("packed_first", [True, False])
def test_the_same_content_packed_and_plain_counts_once(home, dataset, tmp_path, packed_first):
    plain = write_csv(tmp_path / "orders.csv", "a,x,5", "b,y,4")
    (archive := tmp_path / "orders.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    (other := tmp_path / "copy.csv").write_bytes(plain.read_bytes())
    first, second = (archive, plain) if packed_first else (plain, archive)
    assert [log.outcome for log in ingest(home, dataset, [first, second], "run-1")] == ["new", "skipped"]
    again = ingest(home, dataset, [second, other], "run-2")
    assert [(log.file_id, log.outcome) for log in again] == [(1, "skipped"), (1, "skipped")]
    assert count_events(home) == 2


def test_a_file_that_is_packed_anew_under_its_name_keeps_its_events(home, dataset, tmp_path):
    content = write_csv(tmp_path / "orders.csv", "a,x,5", "b,y,4").read_bytes()
    archive = tmp_path / "orders.csv.gz"
    packed = [gzip.compress(content, 9, mtime=1), gzip.compress(content, 1, mtime=2), gzip.compress(content + b"c,z,3")]
    for run_id, bytes_, outcome in zip("123", packed, ["new", "skipped", "changed"], strict=True):
        archive.write_bytes(bytes_)
        assert [log.outcome for log in ingest(home, dataset, [archive], run_id)] == [outcome]
    assert count_events(home) == 3


def test_a_name_that_goes_over_to_other_content_while_its_own_comes_packed(home, dataset, tmp_path):
    plain = write_csv(tmp_path / "orders.csv", "a,x,5", "b,y,4")
    ingest(home, dataset, [plain], "run-1")
    (archive := tmp_path / "orders.1.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    write_csv(plain, "c,z,3")
    assert [log.outcome for log in ingest(home, dataset, [plain, archive], "run-2")] == ["new", "skipped"]
    assert count_events(home) == 3


KINDS = "user_id,item_id,value,event,timestamp"
BOUGHT = [f"u{number},i{number % 7},1,purchase,2025-03-{1 + number % 28:02d}" for number in range(50)]
LATER = [f"v{number},i{number % 7},1,purchase,2025-04-{1 + number % 28:02d}" for number in range(30)]


@pytest.mark.parametrize("declared", ["[events]", "sum_values", "neither"])
def test_events_that_stand_in_two_files_are_an_alarm_where_values_add_up(home, tmp_path, declared):
    updates = {"[events]": {"events": {"purchase": 5.0}}, "sum_values": {"binarize": {"sum_values": True}}}
    shop = Dataset.model_validate({"name": "shop", **updates.get(declared, {})})
    one = write_lines(tmp_path / "day1.csv", KINDS, *BOUGHT)
    ingest(home, shop, [one], "run-1")
    two = write_lines(tmp_path / "day2.csv", KINDS, *BOUGHT[20:], *LATER, LATER[0])
    three = write_lines(tmp_path / "day3.csv", KINDS, *(line.replace("v", "w", 1) for line in LATER))
    ingest(home, shop, [two, three], "run-2")
    text = f"{two}: 30 of its 61 events are in {one} too, line for line, and count twice: leave them out of one of them"
    assert query_rows(home, "from operations.alarms") == [("run-2", text)] * (declared != "neither")


@pytest.mark.parametrize("name", ["log.csv", "log.jsonl", "log.parquet"])
def test_blanks_around_ids_are_dropped(home, tmp_path, name):
    rows = pl.DataFrame({"user_id": ["  u0", "u1 "], "item_id": [" i0", " i1 "]})
    write = {"log.csv": rows.write_csv, "log.jsonl": rows.write_ndjson, "log.parquet": rows.write_parquet}[name]
    write(tmp_path / name)
    ingest(home, Dataset(name="mine"), [tmp_path / name], "run")
    assert query_rows(home, "select user_id, item_id from raw.events order by all") == [("u0", "i0"), ("u1", "i1")]
