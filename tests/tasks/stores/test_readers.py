"""Readers and a run do not stop each other: a held warehouse is waited for, and what is published is only read."""

import os
import subprocess
import sys
import time
from dataclasses import replace

import duckdb

from oneclass.tasks.publish.plan import PublicationPlan
from oneclass.tasks.publish.stage import publish
from oneclass.tasks.stores import publications, runs, warehouse
from oneclass.tasks.stores.publications import DATABASE_FILE
from tests.conftest import execute_statement


def publish_row(home, run_id):
    """A run that writes a metric, here without contracts, and publishes it."""
    with runs.record_run(home, run_id, "backfill", {}):
        execute_statement(home, "insert into evaluation.metrics values (?, 'p', 'm', 's', 'k', 1, 0, 1)", [run_id])
        publish(home, run_id, PublicationPlan())


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
    publish_row(home, "run")
    folder = home.published.resolve()
    for path in (*folder.iterdir(), folder):
        path.chmod(0o550 if path is folder else 0o440)
    with publications.open_published_tables(home) as one, publications.open_published_tables(replace(home)) as other:
        assert one.execute("from metrics").fetchall() == other.execute("from metrics").fetchall() != []
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
    publish_row(home, "first")
    folder = home.published.resolve()
    home.published.unlink()
    os.rename(folder, home.published)  # as a copy that follows links leaves it
    publish_row(home, "second")
    assert home.published.is_symlink() and "is not a link" in caplog.text
    assert len(list(home.folder.glob("published.*.set-aside/published.duckdb"))) == 1


def test_the_published_tables_are_readable_from_duckdb_1_2_on(by_model):
    home, _ = by_model
    with duckdb.connect(str(home.published / DATABASE_FILE), read_only=True) as connection:
        (tags,) = connection.execute("select tags from duckdb_databases() where not internal").fetchone()
        assert tags == {"storage_version": "v1.2.0+"}
        tables = [name for (name,) in connection.execute("select table_name from duckdb_tables()").fetchall()]
    assert {"recommendations", "metrics", "histories"} <= set(tables)
