"""The stage as a whole: new, known and changed logs, its contract, and the state that a killed run leaves."""

import gzip
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from oneclass.data_contracts import ContractBroken
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home
from tests.conftest import query_rows
from tests.tasks.ingest.conftest import count_events, write_csv, write_file

EVENTS = "select user_id, item_id, value, file_id, line_number from raw.events order by all"
ARRIVALS = """
    select name, outcome, events, rejects, events_before, rejects_before from operations.arrivals
    where run_id = '{}' order by all
"""


@pytest.fixture
def loose(dataset: Dataset) -> Dataset:
    """A data set of whose lines half may be rejected."""
    return dataset.model_copy(update={"max_reject_share": 0.5})


def test_new_logs_are_read_listed_and_skipped_later_by_their_bytes(home, dataset, tmp_path):
    one = write_csv(tmp_path / "one.csv", "a,x,5", *["a,y,4"] * 200, "broken")
    packed = write_file(tmp_path / "two.csv.gz", gzip.compress(b"user_id,item_id,rating\nb,x,1\n"))
    nameless = write_file(tmp_path / "ratings.dat", "1::2::5::978300760\n")
    copy = write_csv(tmp_path / "copy.csv", "a,x,5", *["a,y,4"] * 200, "broken")
    found = [
        [(log.file_id, log.outcome) for log in ingest(home, dataset, paths, f"run-{number}")]
        for number, paths in enumerate([[nameless], [one], [copy], [packed, one, packed]])
    ]
    assert found == [[(1, "new")], [(2, "new")], [(2, "skipped")], [(3, "new"), (2, "skipped"), (3, "skipped")]]
    assert query_rows(home, EVENTS)[::202] == [("1", "2", 5, 1, 1), ("b", "x", 1, 3, 2)]
    columns = "file_id, path, bytes, events, rejects, length(sha256), names_columns"
    assert query_rows(home, f"select {columns} from operations.log_files order by 1") == [
        (1, str(nameless), nameless.stat().st_size, 1, 0, 64, False),
        (2, str(one), one.stat().st_size, 201, 1, 64, True),
        (3, str(packed), packed.stat().st_size, 1, 0, 64, True),
    ]


def test_a_night_without_new_logs_checks_what_is_there(home, dataset, tmp_path):
    ingest(home, dataset, [write_csv(tmp_path / "one.csv", "a,x,5", "a,y,4")], "run-1")
    assert ingest(home, dataset, [], "run-2") == [] and count_events(home) == 2
    checked = "select count(*), bool_and(success) from operations.contract_results where run_id = '{}'"
    assert query_rows(home, checked.format("run-2")) == query_rows(home, checked.format("run-1"))
    with warehouse.open_warehouse(home) as connection:
        connection.execute("delete from raw.events where item_id = 'x'")
    with pytest.raises(ContractBroken, match="events_counted"):
        ingest(home, dataset, [], "run-3")


def test_too_many_rejects_in_named_files_break_the_contract_and_leave_what_was_there(home, dataset, tmp_path):
    allowed = dataset.model_copy(update={"max_reject_share": 0.2})
    good = [f"u{number},x,5" for number in range(20)]
    ingest(home, allowed, [write_csv(tmp_path / "before.csv", "an old reject", *good)], "run-1")
    tables = "raw.rejects", "operations.log_files", "raw.events"
    before = [query_rows(home, f"from {table} order by all") for table in tables]
    some = write_csv(tmp_path / "a.csv", "one", *good[:4])
    worst = write_csv(tmp_path / "b.csv", *good[:2], "a,x,7", "another")
    with pytest.raises(ContractBroken, match="b.csv, line 4: value is above(?s:.*)max_reject_share = 0.5") as broken:
        ingest(home, allowed, [some, worst], "run-2")
    (sample,) = next(one for one in broken.value.broken if one.rule == "share_of_rejects").samples
    assert (sample["file_with_most"], sample["line_number"], sample["first_reject"]) == (str(worst), 4, "a,x,7")
    assert (sample["rejects"], sample["lines"]) == (3, 9)
    assert [query_rows(home, f"from {table} order by all") for table in tables] == before


def test_replace_reads_the_sources_anew_and_takes_away_the_others(home, dataset, tmp_path):
    one = write_csv(tmp_path / "one.csv", "a,x,5", *["a,y,5"] * 200, "broken")
    two = write_csv(tmp_path / "two.csv", "b,x,1")
    ingest(home, dataset, [one], "run-1")
    assert [log.file_id for log in ingest(home, dataset, [two], "run-2", replace=True)] == [1]
    assert query_rows(home, EVENTS) == [("b", "x", 1, 1, 2)] and query_rows(home, "from raw.rejects") == []


KILLED = """
import os, signal, sys
from pathlib import Path
from oneclass.tasks import datasets
from oneclass.tasks.stores.home import Home
from oneclass.tasks.ingest import stage

load, root = stage.load_logs, Path(sys.argv[1])
def load_and_die(connection, files, scratch, dataset):
    load(connection, files, scratch, dataset)
    print(*connection.execute("select count(*) from raw.events").fetchone(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

stage.load_logs = load_and_die
stage.ingest(Home(root, "small"), datasets.load_dataset("ml-1m", root), [sys.argv[2]], "run-2")
"""


@pytest.mark.slow
def test_a_run_that_is_killed_while_it_replaces_leaves_the_old_and_the_next_one_reads_the_new(home, dataset, tmp_path):
    path = write_csv(tmp_path / "ratings.csv", "a,y,5", "b,y,5")
    ingest(home, dataset, [path], "run-1")
    write_csv(path, *[f"{user},x,5" for user in range(50_000)])
    command = [sys.executable, "-c", KILLED, str(home.root), str(path)]
    killed = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False)
    assert (killed.returncode, killed.stdout.strip()) == (-signal.SIGKILL, "50000"), killed.stderr
    assert query_rows(home, "select user_id from raw.events order by all") == [("a",), ("b",)]
    assert [log.outcome for log in ingest(home, dataset, [path], "run-3")] == ["changed"]
    assert count_events(home) == 50_000


def test_a_changed_file_replaces_its_events_and_is_reported(home, loose, tmp_path, caplog):
    one, two = write_csv(tmp_path / "one.csv", "a,x,5", "a,y,4", "broken"), write_csv(tmp_path / "two.csv", "b,x,5")
    ingest(home, loose, [one, two], "run-1")
    write_csv(one, "a,x,5", "c,z,5", "c,y,2")  # the like of y was taken back, a line was mended, two were added
    with caplog.at_level(logging.INFO, "oneclass.tasks.ingest"):
        logs = ingest(home, loose, [one, two], "run-2")
    assert [(log.file_id, log.outcome) for log in logs] == [(1, "changed"), (2, "skipped")]
    assert query_rows(home, EVENTS) == [
        ("a", "x", 5, 1, 2), ("b", "x", 5, 2, 2), ("c", "y", 2, 1, 4), ("c", "z", 5, 1, 3)
    ]  # fmt: skip
    assert query_rows(home, "from raw.rejects") == []
    assert query_rows(home, ARRIVALS.format("run-2")) == [(str(one), "changed", 3, 0, 2, 1)]
    assert "1 new log with 3 events and 0 rejects; 1 known log skipped" in caplog.text


@pytest.mark.slow
def test_what_changed_comes_out_as_from_nothing(home, loose, tmp_path):
    head = "user_id,item_id,rating,timestamp\n"
    early = write_file(tmp_path / "b.csv", f"{head}u,x,5,1000000000\nv,y,5,1000000001\nw,z,5,1000000002\n")
    late = write_file(tmp_path / "a.csv", f"{head}w,x,5,1000000003\nu,x,4,1000000004\n")
    third = write_file(tmp_path / "c.csv", f"{head}t,x,5,1000000005\n")
    for night, paths in enumerate(([early], [early, late], [early, late, third])):
        ingest(home, loose, paths, f"run-{night}")
    # Taken back, come late with an earlier date, and in another order.
    write_file(early, f"{head}w,z,5,1000000002\nu,x,3,1000000000\nw,x,5,900000000\ns,y,5,1000000009\n")
    ingest(home, loose, [early, late, third], "run-4")
    fresh = Home(tmp_path / "fresh", "small", home.limits)
    ingest(fresh, loose, [early, late, third], "run")
    for one in (home, fresh):
        binarize(one, BinarizeSettings(threshold=4), "run")
    first = "select first_at::varchar from curated.interactions where (user_id, item_id) = ('w', 'x')"
    assert query_rows(home, first) == [("1998-07-09 16:00:00",)]
    files = "select * exclude ingested_at from operations.log_files"
    for rows in ("from raw.events", "from curated.interactions", files):
        assert query_rows(home, f"{rows} order by all") == query_rows(fresh, f"{rows} order by all")


def test_a_name_is_the_same_however_the_path_is_spelt_and_wherever_the_home_is(home, dataset, tmp_path):
    path = write_csv(home.landing / "ratings.csv", "a,x,5")
    ingest(home, dataset, [], "run-1")
    write_csv(path, "b,y,5")
    other = write_csv(tmp_path / "june" / "ratings.csv", "c,y,5")
    assert [one.outcome for one in ingest(home, dataset, [os.path.relpath(path), other], "run-2")] == ["changed", "new"]
    home.root.rename(tmp_path / "elsewhere")
    home = Home(tmp_path / "elsewhere", home.dataset, home.limits)
    write_csv(home.landing / "ratings.csv", "a,x,5", "b,y,5")
    assert [one.outcome for one in ingest(home, dataset, [], "run-3")] == ["changed"] and count_events(home) == 3


def test_the_same_content_counts_once_however_it_is_packed_and_called(home, dataset, tmp_path):
    content = write_csv(plain := tmp_path / "orders.csv", "a,x,5", "b,y,4").read_bytes()
    archive = write_file(tmp_path / "orders.csv.gz", gzip.compress(content, 9, mtime=1))
    nights = [[log.outcome for log in ingest(home, dataset, [archive, plain], "run-1")]]
    write_file(archive, gzip.compress(content, 1, mtime=2))
    write_csv(plain, "c,z,3")  # goes over to other content, while its own stays in the archive
    nights += [[log.outcome for log in ingest(home, dataset, [plain, archive], "run-2")]]
    write_file(archive, gzip.compress(content + b"d,z,3\n"))
    nights += [[log.outcome for log in ingest(home, dataset, [plain, archive], "run-3")]]
    assert nights == [["new", "skipped"], ["new", "skipped"], ["skipped", "changed"]] and count_events(home) == 4
    write_file(archive, gzip.compress(plain.read_bytes()))  # becomes a copy of the other
    assert [log.outcome for log in ingest(home, dataset, [plain, archive], "run-4")] == ["skipped", "withdrawn"]
    assert query_rows(home, ARRIVALS.format("run-4")) == [(str(archive), "withdrawn", 0, 0, 3, 0)]
    assert count_events(home) == 1


KINDS = "user_id,item_id,value,event,timestamp\n"
BOUGHT = [f"u{number},i{number % 7},1,purchase,2025-03-{1 + number % 28:02d}\n" for number in range(50)]
LATER = [f"v{number},i{number % 7},1,purchase,2025-04-{1 + number % 28:02d}\n" for number in range(30)]


@pytest.mark.parametrize("declared", ["[events]", "sum_values", "neither"])
def test_events_that_stand_in_two_files_are_an_alarm_where_values_add_up(home, tmp_path, declared):
    updates = {"[events]": {"events": {"purchase": 5.0}}, "sum_values": {"binarize": {"sum_values": True}}}
    shop = Dataset.model_validate({"name": "shop", **updates.get(declared, {})})
    one = write_file(tmp_path / "day1.csv", KINDS + "".join(BOUGHT))
    ingest(home, shop, [one], "run-1")
    two = write_file(tmp_path / "day2.csv", KINDS + "".join([*BOUGHT[20:], *LATER, LATER[0]]))
    three = write_file(tmp_path / "day3.csv", KINDS + "".join(LATER).replace("v", "w"))
    ingest(home, shop, [two, three], "run-2")
    text = f"{two}: 30 of its 61 events are in {one} too, line for line, and count twice: leave them out of one of them"
    assert query_rows(home, "from operations.alarms") == [("run-2", text)] * (declared != "neither")
