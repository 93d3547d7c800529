"""What a crash or damage leaves of the warehouse and of publications, and how the next run puts it right."""

import os
import subprocess
import sys

import pytest

from oneclass.tasks.errors import InputError
from oneclass.tasks.stores import checksums, publications, runs, warehouse
from tests.conftest import execute_statement, flip_bit, make_current, query_rows

KILLED = """
import os, signal, sys
import duckdb
connection = duckdb.connect(sys.argv[1])
for number in range(3):
    connection.execute("insert into raw.rejects select ?, i, 'line', 'reason' from range(50) r(i)", [number])
os.kill(os.getpid(), signal.SIGKILL)
"""


IN_A_CHECKPOINT = """
import os, signal, sys
import duckdb
connection = duckdb.connect(sys.argv[1])
connection.execute(f"set debug_checkpoint_abort = '{sys.argv[2]}'")
connection.execute("insert into raw.rejects select 1, i, 'line', 'reason' from range(150) r(i)")
try:
    connection.execute("checkpoint")
finally:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def load_rejects(home):
    with warehouse.open_warehouse(home) as connection:
        return connection.execute("select count(*) from raw.rejects").fetchone()[0]


@pytest.mark.parametrize("when", ["before_header", "before_truncate", "after_free_list_write", "before_wal_finish"])
def test_a_checkpoint_that_is_cut_off_loses_nothing(home, when):
    """From `before_truncate` on, the file has it all, and DuckDB deletes its log when it opens the file."""
    assert load_rejects(home) == 0
    command = [sys.executable, "-c", IN_A_CHECKPOINT, str(home.warehouse), when]
    subprocess.run(command, capture_output=True, check=False)
    assert home.warehouse.with_name("warehouse.duckdb.wal").stat().st_size > 1000
    assert load_rejects(home) == 150
    assert not list(home.folder.glob("*.unreadable"))


@pytest.mark.parametrize("place", [0, 60, None], ids=["beginning", "first entry", "middle"])
def test_a_log_that_cannot_be_replayed_is_set_aside_and_said(home, place, caplog):
    """DuckDB keeps three transactions of a killed writer in the log, and passes over one with another beginning."""
    execute_statement(home, "insert into raw.rejects values (9, 9, 'line', 'before the crash')")
    subprocess.run([sys.executable, "-c", KILLED, str(home.warehouse)], capture_output=True, check=False)
    log = home.warehouse.with_name("warehouse.duckdb.wal")
    assert log.stat().st_size > 1000
    flip_bit(log, place)
    bytes_left = log.read_bytes()
    if place is None:  # who only reads leaves such a log to the next run
        refuses = pytest.raises(InputError, match="cannot be replayed. Any run on small sets it aside")
        with refuses, warehouse.open_warehouse(home, read_only=True):
            pass
    assert load_rejects(home) == 1
    [aside] = home.folder.glob("warehouse.duckdb.wal.*.unreadable")
    assert aside.read_bytes() == bytes_left
    assert f"set aside as {aside.name}. Lost: {len(bytes_left):,} bytes" in caplog.text
    caplog.clear()
    assert load_rejects(home) == 1 and not caplog.text


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_warehouse_that_is_damaged_or_cut_short_is_reported(home, share):
    for _ in range(3):  # in the end, what DuckDB must read at once stands in the file's first half
        execute_statement(home, "insert into raw.rejects select 1, i, md5(i::varchar), 'r' from range(200000) r(i)")
    flip_bit(home.warehouse)
    reports = pytest.raises(InputError, match="warehouse.duckdb: .*is damaged")
    with reports, warehouse.open_warehouse(home) as connection:
        connection.execute("select max(line), sum(line_number) from raw.rejects").fetchall()
    os.truncate(home.warehouse, int(share * home.warehouse.stat().st_size))
    refuses = pytest.raises(InputError, match="Put a copy of it back, or move it away and run again")
    with refuses, warehouse.open_warehouse(home):
        pass


def test_what_a_killed_run_left_half_made_is_removed_by_the_next(home):
    half = [
        "spill/duckdb_temp_storage-0.tmp",
        "spill/ingest-abc/1.txt",
        "matrices/partial-1/train.npy",
        "models/slim/partial-2/weights.npy",
        ".demo-4/log.txt",
        "report/.index.html",
        "report/.small-summary.json",
    ]
    stay = ["models/mult_vae/digest/weights.npy", "matrices/digest/train.npy", "report/index.html"]
    for file in (home.folder / name for name in half + stay):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("left")
    make_current(home, publications.create_publication(home, "whole"))
    half_published = home.publications / "killed" / "evaluation.csv"
    half_published.parent.mkdir()
    half_published.write_text("left")
    with runs.record_run(home, "run", "backfill", {}):
        pass
    left = {str(file.relative_to(home.folder)) for file in home.folder.rglob("*") if file.is_file()}
    assert left == {*stay, "warehouse.duckdb", ".lock", "publications/whole/manifest.json"}


RUNS = ("first", "second", "third")
USERS = "model/users.parquet"


@pytest.fixture
def published(home):
    """A home with three publications, each with a list that names its run; the last is current."""
    for run_id in RUNS:
        with warehouse.open_warehouse(home) as connection:
            connection.execute("delete from published.recommendations")
            listed = "insert into published.recommendations (user_id, item_id, rank, score) values ('u', ?, 1, 1)"
            connection.execute(listed, [run_id])
            folder = publications.create_publication(home, run_id)
            (folder / "model").mkdir()
            (folder / USERS).write_bytes(b"users")
            tables = [("recommendations", connection.sql("from published.recommendations"))]
            publications.write_tables(home, folder, tables)
        make_current(home, folder)
    return home


def repair(home):
    with warehouse.open_warehouse(home) as connection:
        return publications.repair_publications(connection, home)


def is_current(home, run_id):
    """Whether link, record and tables are those of a run, whose files are undamaged."""
    checksums.load_checked_facts(home.published.resolve(), "manifest.json")
    listed = query_rows(home, "select item_id from published.recommendations")
    recorded = query_rows(home, "select run_id from operations.publications where is_current")
    return (home.published.resolve().name, listed, recorded) == (run_id, [(run_id,)], [(run_id,)])


def damage(home, run_id, file=publications.DATABASE_FILE):
    flip_bit(home.publications / run_id / file)


@pytest.mark.parametrize("run_id", ["first", "third"])
def test_a_manifest_is_restored_from_the_warehouse(published, run_id):
    before = (published.publications / run_id / "manifest.json").read_bytes()
    damage(published, run_id, "manifest.json")
    [alarm] = repair(published)
    assert run_id in alarm and "restored from the warehouse" in alarm
    assert (published.publications / run_id / "manifest.json").read_bytes() == before
    assert repair(published) == [] and is_current(published, "third")


@pytest.mark.parametrize(("damaged", "instead"), [({"third": USERS}, "second"), (dict.fromkeys(RUNS[1:], ""), "first")])
def test_the_latest_undamaged_publication_is_published_again(published, damaged, instead):
    for run_id, file in damaged.items():
        damage(published, run_id, file or publications.DATABASE_FILE)
    [alarm] = repair(published)
    assert f"The publication of run {instead} is published again" in alarm and is_current(published, instead)
    assert repair(published) == []


def test_without_an_undamaged_publication_all_stays_and_readers_refuse_it(published):
    for run_id in RUNS:
        damage(published, run_id)
    [alarm] = repair(published)
    assert "No other publication is undamaged" in alarm and published.published.resolve().name == "third"
    with pytest.raises(checksums.DamagedFile), publications.open_published_tables(published):
        pass


@pytest.mark.parametrize("linked", [None, "second"])
def test_the_link_is_set_to_what_the_warehouse_records(published, linked):
    published.published.unlink()
    if linked:
        publications.switch_link(published, published.publications / linked)
    [alarm] = repair(published)
    assert "it points to run third, which was published last" in alarm and is_current(published, "third")


def test_what_the_link_shows_is_recorded_where_the_warehouse_has_no_record(published):
    """As in a home whose warehouse was made anew from the logs."""
    execute_statement(published, "delete from operations.publications; delete from published.recommendations")
    assert repair(published) == [] and is_current(published, "third")
