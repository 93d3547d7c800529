"""The stage as a whole: new, known and changed logs, its contract, and the state that a killed run leaves."""

import gzip
import os

import pytest

from oneclass.data_contracts import ContractBroken
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.ingest.stage import TABLES, ingest
from oneclass.tasks.stores.home import Home
from tests.conftest import query_rows
from tests.tasks.ingest.conftest import count_events, write_csv, write_file

CHANGES = "select outcome, events, rejects, events_before, rejects_before from operations.arrivals"
LOGS = "right join (select * exclude (ingested_at) from operations.log_files) using (file_id)"
ROWS = [f"select * exclude (file_id) from {table} {LOGS} order by all" for table in TABLES[:3]]


def test_a_new_log_is_listed_and_skipped_later_by_its_bytes(home, dataset, tmp_path):
    one = write_csv(tmp_path / "one.csv", "a,x,5", *["a,y,4"] * 200, "broken")
    nameless = write_file(tmp_path / "ratings.dat", "1::2::5::978300760\n")
    ingest(home, dataset, [nameless], "run-1")
    ingest(home, dataset, [one, one, nameless], "run-2")
    events = "select user_id, item_id, value, file_id, line_number from raw.events order by all"
    assert query_rows(home, events)[:2] == [("1", "2", 5, 1, 1), ("a", "x", 5, 2, 2)]
    columns = "file_id, path, bytes, events, rejects, length(sha256), names_columns"
    assert query_rows(home, f"select {columns} from operations.log_files order by 1") == [
        (1, str(nameless), nameless.stat().st_size, 1, 0, 64, False),
        (2, str(one), one.stat().st_size, 201, 1, 64, True),
    ]


def test_too_many_rejects_in_named_files_break_the_contract_and_leave_what_was_there(home, dataset, tmp_path):
    allowed = dataset.model_copy(update={"max_reject_share": 0.2})
    good = [f"u{number},x,5" for number in range(20)]
    ingest(home, allowed, [write_csv(tmp_path / "before.csv", "an old reject", *good)], "run-1")
    tables = "raw.rejects", "operations.log_files", "raw.events"
    before = [query_rows(home, f"from {table} order by all") for table in tables]
    some = write_csv(tmp_path / "before.csv", "one", *good[:4])
    worst = write_csv(tmp_path / "b.csv", *good[:2], "a,x,7", "another")
    with pytest.raises(ContractBroken, match="b.csv, line 4: value is above(?s:.*)max_reject_share = 0.5"):
        ingest(home, allowed, [some, worst], "run-2")
    assert [query_rows(home, f"from {table} order by all") for table in tables] == before


# fmt: off
NIGHTS = {  # the last night's change, with events and rejects and those before; of each night the files that are
    # written, and the sources, each with its `file_id` and outcome
    "lines come late, and in another order": [
        ("changed", 4, 0, 3, 1),
        ({"b": "u,x,5,1000000000\nv,y,5,1000000001\nbroken\nw,z,5,1000000002"}, {"b": "1 new"}),
        ({"a": "w,x,5,1000000003\nu,x,4,1000000004"}, {"b": "1 skipped", "a": "2 new"}),
        ({"c": "t,x,5,1000000005"}, {"b": "1 skipped", "a": "2 skipped", "c": "3 new"}),
        ({"b": "w,z,5,1000000002\nu,x,3,1000000000\nw,x,5,900000000\ns,y,5,1000000009"},
         {"b": "1 changed", "a": "2 skipped", "c": "3 skipped"}),
    ],
    "files are packed anew and change their names": [
        ("withdrawn", 0, 0, 3, 0),
        ({"one": "a,x,5\nb,y,4", "one.gz": "a,x,5\nb,y,4"}, {"one.gz": "1 new", "one": "1 skipped"}),
        ({"one": "c,z,3", "one.gz": "a,x,5\nb,y,4"}, {"one": "2 new", "one.gz": "1 skipped"}),
        ({"one.gz": "a,x,5\nb,y,4\nd,z,3"}, {"one": "2 skipped", "one.gz": "1 changed"}),
        ({"one.gz": "c,z,3"}, {"one": "2 skipped", "one.gz": "2 withdrawn"}),
    ],
}
# fmt: on


@pytest.mark.parametrize("name", NIGHTS)
def test_what_changed_comes_out_as_from_nothing(home, dataset, tmp_path, name):
    change, *nights = NIGHTS[name]
    loose = dataset.model_copy(update={"max_reject_share": 0.5})
    header = "user_id,item_id,rating" + ",timestamp" * ("late" in name)
    for night, (files, outcomes) in enumerate(nights):
        for file, lines in files.items():
            text = f"{header}\n{lines}\n".encode()
            write_file(tmp_path / file, gzip.compress(text, mtime=night) if file == "one.gz" else text)
        logs = ingest(home, loose, [tmp_path / file for file in outcomes], f"night-{night}")
        assert [f"{log.file_id} {log.outcome}" for log in logs] == [*outcomes.values()]
    assert query_rows(home, f"{CHANGES} where run_id = 'night-{night}'") == [change]
    paths = [tmp_path / file for file in outcomes]
    for replace, sources in ((False, paths), (True, paths[:1])):
        ingest(home, loose, sources, "again", replace=replace)
        ingest(fresh := Home(tmp_path / f"fresh-{replace}", "small", home.limits), loose, sources, "run")
        assert [query_rows(home, select) for select in ROWS] == [query_rows(fresh, select) for select in ROWS]


def test_a_name_is_the_same_however_the_path_is_spelt_and_wherever_the_home_is(home, dataset, tmp_path):
    path = write_csv(home.landing / "ratings.csv", "a,x,5")
    ingest(home, dataset, [], "run-1")
    write_csv(path, "b,y,5")
    june = tmp_path / "june"
    other, last = write_csv(june / "ratings[1].csv", "c,y,5"), write_csv(june / "ratings2.csv", "d,y,5")
    assert [one.outcome for one in ingest(home, dataset, [os.path.relpath(path), other], "run-2")] == ["changed", "new"]
    write_file(june / "notes.md", "no log")
    for source in (june, june / "r*.csv"):
        assert [one.log.location for one in ingest(home, dataset, [source], f"{source}")] == [last, other]
    home.root.rename(tmp_path / "elsewhere")
    home = Home(tmp_path / "elsewhere", home.dataset, home.limits)
    write_csv(home.landing / "ratings.csv", "a,x,5", "b,y,5")
    assert [one.outcome for one in ingest(home, dataset, [], "run-3")] == ["changed"] and count_events(home) == 4


@pytest.mark.parametrize("declared", [{"events": {"purchase": 5.0}}, {"binarize": {"sum_values": True}}, {}])
def test_events_that_stand_in_two_files_are_an_alarm_where_values_add_up(home, tmp_path, declared):
    shop = Dataset.model_validate({"name": "shop", **declared})
    lines = [f"u{number},i{number % 7},1,purchase,2025-03-{1 + number % 28:02d}\n" for number in range(80)]
    days = lines[:50], [*lines[20:], lines[79]], [line.replace("u", "w", 1) for line in lines[50:]]
    header = "user_id,item_id,value,event,timestamp\n"
    paths = [write_file(tmp_path / f"day{day}.csv", "".join([header, *found])) for day, found in enumerate(days)]
    ingest(home, shop, paths[:1], "run-1")
    ingest(home, shop, paths[1:], "run-2")
    text = "{1}: 30 of its 61 events are in {0} too, line for line, and count twice: leave them out of one of them"
    assert query_rows(home, "from operations.alarms") == [("run-2", text.format(*paths))] * bool(declared)
