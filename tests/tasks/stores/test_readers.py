"""Readers never stop a run, and a run never stops readers: other processes read in a loop while stages are written."""

import os
import subprocess
import sys
import time
from dataclasses import replace

import duckdb
import pytest

from oneclass.tasks.publish.plan import PublicationPlan
from oneclass.tasks.publish.stage import publish
from oneclass.tasks.stores import publications, runs, warehouse
from oneclass.tasks.stores.publications import DATABASE_FILE

LOOP = """
import os, sys, time
from pathlib import Path
import duckdb
from oneclass.tasks.stores import publications
from oneclass.tasks.stores.home import Home, Limits
home = Home(Path(sys.argv[1]), "small", Limits(threads=1, memory=1 << 28))
print("reading", flush=True)
longest, read, seen, started_by = 0.0, 0, set(), os.getppid()
while not Path(sys.argv[3]).exists() and os.getppid() == started_by:
    began = time.monotonic()
    if sys.argv[2] == "warehouse":  # a stranger's program, which knows nothing of the run
        try:
            with duckdb.connect(str(home.warehouse), read_only=True):
                time.sleep(0.05)
        except duckdb.IOException:
            continue
        time.sleep(0.02)
    else:
        with publications.open_published_tables(home) as connection:
            seen.add(connection.execute("select count(*) from metrics").fetchone()[0])
        longest = max(longest, time.monotonic() - began)
    read += 1
print(read, longest, *sorted(seen))
"""


def insert_metric(connection, run_id):
    connection.execute(
        "insert into evaluation.metrics values (?, 'leave_one_out', 'm', 's', ?, 1, 0, 1)",
        [run_id, str(time.monotonic_ns())],
    )


def publish_rows(home, run_id, rows):
    """A run that writes some stages, here without their contracts, and publishes `rows` metrics."""
    with runs.record_run(home, run_id, "backfill", {}):
        for _ in range(rows):
            with warehouse.open_warehouse(home) as connection:
                insert_metric(connection, run_id)
        publish(home, run_id, PublicationPlan())


@pytest.mark.slow
def test_no_run_fails_and_no_reader_waits(home, tmp_path):
    publish_rows(home, "first", 1)
    over = tmp_path / "over"
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", LOOP, str(home.root), what, str(over)], stdout=subprocess.PIPE, text=True
        )
        for what in ("warehouse", "published")
    ]
    for reader in readers:
        assert reader.stdout.readline() == "reading\n"
    for number in (2, 3):
        publish_rows(home, f"run-{number}", number)
    over.touch()
    (of_warehouse, _), (of_published, longest, *seen) = (reader.communicate()[0].split() for reader in readers)
    assert all(reader.returncode == 0 for reader in readers)
    assert int(of_warehouse) > 2 and int(of_published) > 2
    assert float(longest) < 1 and set(seen) <= {"1", "2", "3"}


def test_a_held_warehouse_is_waited_for_and_that_is_said(home, caplog):
    with warehouse.open_warehouse(home):
        pass
    hold = (
        "import duckdb, sys, time; c = duckdb.connect(sys.argv[1], read_only=True); print(1, flush=True); "
        "time.sleep(1.5)"
    )
    with subprocess.Popen([sys.executable, "-c", hold, str(home.warehouse)], stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        began = time.monotonic()
        with warehouse.open_warehouse(home):
            assert 1 < time.monotonic() - began < 5
    assert f"another program has it open; waiting for up to {home.limits.patience:.0f} s" in caplog.text
    assert f"PID {holder.pid}" in caplog.text and "free again after" in caplog.text


def test_readers_of_one_publication_share_it_without_write_access(home):
    publish_rows(home, "run", 2)
    folder = home.published.resolve()
    for path in (*folder.iterdir(), folder):
        path.chmod(0o550 if path is folder else 0o440)
    with publications.open_published_tables(home) as one, publications.open_published_tables(replace(home)) as other:
        assert one.execute("from metrics").fetchall() == other.execute("from metrics order by all").fetchall()
    assert {file.name for file in folder.iterdir()} == {
        "evaluation.csv",
        "evaluation.md",
        "evaluation.parquet",
        "lists.parquet",
        "manifest.json",
        "published.duckdb",
        "recommendations.parquet",
    }
    folder.chmod(0o750)


def test_a_folder_in_the_links_place_is_set_aside(home, caplog):
    publish_rows(home, "first", 1)
    folder = home.published.resolve()
    home.published.unlink()
    os.rename(folder, home.published)  # as a copy that follows links leaves it
    publish_rows(home, "second", 1)
    assert home.published.is_symlink() and "is not a link" in caplog.text
    assert len(list(home.folder.glob("published.*.set-aside/published.duckdb"))) == 1


def test_the_published_tables_are_readable_from_duckdb_1_2_on(by_model):
    home, _ = by_model
    with duckdb.connect(str(home.published / DATABASE_FILE), read_only=True) as connection:
        (tags,) = connection.execute("select tags from duckdb_databases() where not internal").fetchone()
        assert tags == {"storage_version": "v1.2.0+"}
        tables = [name for (name,) in connection.execute("select table_name from duckdb_tables()").fetchall()]
    assert {"recommendations", "metrics", "histories"} <= set(tables)
