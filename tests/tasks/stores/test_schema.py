"""Versions of the tables: an older home goes on, a newer one is refused, and a migration is whole or not."""

from pathlib import Path

import duckdb
import pytest

from oneclass import sql
from oneclass.flows import commands
from oneclass.tasks.errors import InputError
from oneclass.tasks.stores import runs, warehouse
from tests.conftest import execute_statement, query_rows

UNDONE = """
create table raw.parts (x integer); create table published.predictability (x integer);
create table diagnostics.simulated_nights (x integer); create table evaluation.sweeps (x integer);
create table operations.run_machines (x integer); create table operations.run_packages (x integer);
create table operations.evaluations (x integer); create table diagnostics.nightly_exponents (x integer);
alter table operations.nights drop column usual_from; alter table operations.nights drop column usual_to;
alter table operations.log_files drop column names_columns;
drop table diagnostics.list_hits; create or replace view operations.evaluated_runs as select 7 as run_id;
"""
"""Makes the tables those of version 14, without one table and with another view."""
RUN = "insert into operations.runs values (?, 'backfill', 'small', ?, null, 'completed', '{}', '0')"
EVENTS = (
    "insert into raw.events (user_id, item_id, value, occurred_at, file_id, line_number) "
    "select 'u' || u, 'i' || i, 1, null, 1, row_number() over () from range(4) u(u), range(3) i(i)"
)


@pytest.fixture
def older(home):
    """A home as version 14 of the tables left it, with a run, a log and its events."""
    with warehouse.open_warehouse(home) as connection:
        connection.execute(UNDONE)
        connection.execute("update operations.schema_version set version = 14, statements = null")
        connection.execute("delete from operations.schema_version where rowid > 0")
        connection.execute(RUN, ["old", "2026-01-02"])
        connection.execute("insert into operations.log_files values (1, 'log', 'sha', 1, 12, 0, now()::timestamp, '')")
        connection.execute(EVENTS)
    return home


def load_columns(home):
    with warehouse.open_warehouse(home) as connection:
        kinds = "select schema_name, table_name, column_name, data_type from duckdb_columns() where not internal"
        return connection.execute(f"{kinds} order by schema_name, table_name, column_index").fetchall()


def load_versions(home):
    return [number for (number,) in query_rows(home, "select version from operations.schema_version")]


def test_an_older_home_has_the_tables_views_and_columns_of_a_new_one_and_keeps_its_rows(older, tmp_path):
    fresh = type(older)(tmp_path / "fresh", "small", older.limits)
    assert load_columns(older) == load_columns(fresh), "add a migration for new columns"
    assert load_versions(fresh) == list(sql.migrations()) and load_versions(older) == [14, *sql.migrations()]
    assert query_rows(older, "select run_id from operations.runs") == [("old",)]
    assert query_rows(older, "select count(*) from raw.events") == [(12,)]
    assert load_versions(older) == [14, *sql.migrations()]  # once
    text = (Path(sql.__file__).parent / "migrations.sql").read_text()
    assert list(sql.migrations()) == list(range(15, 15 + text.count("-- name: ")))


def test_a_home_of_before_versions_is_refused_with_how_to_keep_its_events(older):
    execute_statement(older, "drop table operations.schema_version")
    before = file_bytes(older)
    with pytest.raises(InputError, match=r"before 0\.2.*copy raw\.events to .*--source events\.parquet"):
        load_columns(older)
    assert file_bytes(older) == before


def file_bytes(home):
    return {path: path.read_bytes() for path in home.root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["backfill", "promote"])
def test_a_newer_home_is_refused_with_one_sentence_and_no_byte_changes(home, capsys, name):
    execute_statement(home, "insert into operations.schema_version values (100, now()::timestamp, '')")
    before = file_bytes(home)
    more = ["--rollback"] if name == "promote" else []
    (declared := home.root / "datasets" / "small.toml").parent.mkdir()
    declared.write_text('name = "small"\n')
    assert commands.main(name, ["--dataset", "small", "--home", str(home.root), *more]) == 2
    [sentence] = capsys.readouterr().err.strip().splitlines()
    assert "was written by a newer version of this program" in sentence and sentence.endswith("choose another --home.")
    declared.unlink()
    (home.folder / ".lock").unlink(missing_ok=True)  # the only trace, which is empty
    assert file_bytes(home) == before


NEXT = "alter table if exists operations.log_files add column if not exists note varchar default 'none';"


def test_a_migration_is_applied_whole_or_not_at_all(older, monkeypatch):
    known = sql.migrations()
    monkeypatch.setattr(sql, "migrations", lambda: {**known, 99: f"{NEXT} select broken"})
    with pytest.raises(duckdb.Error, match="broken"), warehouse.open_warehouse(older):
        pass
    with duckdb.connect(str(older.warehouse)) as connection:
        assert connection.execute("select max(version) from operations.schema_version").fetchone() == (14,)
        assert len(connection.execute("from operations.log_files").description) == 8
    monkeypatch.setattr(sql, "migrations", lambda: {**known, 99: NEXT})
    load_columns(older)
    assert query_rows(older, "select note from operations.log_files") == [("none",)]


def test_runs_are_in_the_order_that_they_were_recorded_in_whatever_the_clock_says(home):
    """One that evaluated nothing, or failed, is not the run before another."""
    for number, run_id in enumerate(("future", "tune", "failed", "now"), 1):
        with runs.record_run(home, run_id, "backfill", {}), warehouse.open_warehouse(home) as connection:
            connection.execute(
                "update operations.runs set started_at = make_timestamp(2030 - ?, 1, 1, 0, 0, 0) where run_id = ?",
                [number, run_id],
            )
            if run_id != "tune":
                connection.execute("insert into evaluation.metrics values (?, 'p', 'm', 's', 'k', 1, 0, 1)", [run_id])
    execute_statement(home, "update operations.runs set state = 'failed' where run_id = 'failed'")
    with warehouse.open_warehouse(home, read_only=True) as connection:
        assert runs.find_latest_evaluated(connection) == "now"
        found = warehouse.select(connection, "report/previous_run", run_id="now")
        assert found["run_id"].to_list() == ["future"]
        assert warehouse.select(connection, "report/previous_run", run_id="future").is_empty()
