"""The warehouse: one transaction a stage, contracts inside it, and errors that say what to do."""

import subprocess
import sys
from dataclasses import replace

import polars as pl
import pytest

from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.stores import runs, stages, warehouse
from oneclass.tasks.stores.home import Home, Limits
from tests.conftest import execute_statement, query_rows


def count_rows(home, table):
    return query_rows(home, f"select count(*) from {table}")[0][0]


def reject_line(connection, line=1):
    connection.execute("insert into raw.rejects values (1, ?, 'line', 'reason')", [line])


def test_an_error_in_a_stage_leaves_nothing(home):
    with pytest.raises(ZeroDivisionError), stages.run_stage(home, "run", "ingest", {}) as connection:
        reject_line(connection)
        1 / 0  # noqa: B018
    assert (count_rows(home, "raw.rejects"), count_rows(home, "operations.contract_results")) == (0, 0)


HOLDER = """
import sys
from pathlib import Path
from oneclass.tasks.stores import runs, stages, warehouse
from oneclass.tasks.stores.home import Home
home = Home(Path(sys.argv[1]), "small")
with runs.lock_data_set(home) if sys.argv[2] == "lock" else warehouse.open_warehouse(home):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(("what", "message"), [("lock", "another run holds"), ("file", "another process holds")])
def test_a_data_set_held_by_another_process_is_reported(home, what, message):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(home.root), what], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        hasty = replace(home, limits=replace(home.limits, patience=0.1))
        with pytest.raises(InputError, match=message), runs.lock_data_set(hasty), warehouse.open_warehouse(hasty):
            pass
        holder.stdin.close()


@pytest.mark.parametrize("folder", ["var", "clocks"])
def test_what_is_no_warehouse_is_reported(tmp_path, folder):
    home = Home(tmp_path / folder, "small", Limits(1, 1 << 30))  # a name with "lock" in it is no held file
    home.folder.mkdir(parents=True)
    home.warehouse.write_text("not a database, but long enough to be taken for a file of some other program" * 100)
    with pytest.raises(InputError, match="cannot be opened as a DuckDB warehouse"), warehouse.open_warehouse(home):
        pass
    below_a_file = replace(home, root=home.warehouse)
    with pytest.raises(InputError, match="cannot be written to"), warehouse.open_warehouse(below_a_file):
        pass


def test_a_warehouse_of_an_earlier_version_is_reported(home):
    with warehouse.open_warehouse(home) as connection:
        connection.execute("drop view operations.evaluated_runs")
        connection.execute("update operations.schema_version set statements = 'of an earlier program'")
    with (
        pytest.raises(InputError, match=r"Any run on small updates it\.\n.*evaluated_runs"),
        warehouse.open_warehouse(home, read_only=True) as connection,
    ):
        runs.find_latest_evaluated(connection)
    with warehouse.open_warehouse(home) as connection:
        assert runs.find_latest_evaluated(connection) is None


def test_frames_go_in_and_come_out_by_name(home):
    rows = pl.DataFrame({"metric": ["k", "l"], "standard_error": [None, None], "value": [1.5, 2.0], "users": [3, 4]})
    keys = {name: pl.lit(name) for name in ("score", "run_id", "protocol", "model")}
    with warehouse.open_warehouse(home) as connection:
        connection.execute("select 1 from range(9)").fetchone()  # a result that is not read to its end
        warehouse.insert(connection, "evaluation.metrics", rows.with_columns(**keys))
        warehouse.insert(connection, "evaluation.metrics", rows.clear())
        connection.execute("select 1 from range(9)").fetchone()
        found = warehouse.query(connection, "select * exclude (run_id) from evaluation.metrics order by all")
        relation = {"edges": "(select null::date as first_at)"}
        assert warehouse.select(connection, "split/next_cut", relation, share=0.5).columns == ["next_from"]
    expected = [("protocol", "model", "score", "k", 1.5, None, 3), ("protocol", "model", "score", "l", 2.0, None, 4)]
    assert found.rows() == expected and found.schema["standard_error"] == pl.Float64


def test_runs_are_recorded_from_begin_to_end(home):
    with runs.record_run(home, "first", "backfill", {"seed": 0}):
        pass
    with pytest.raises(OneclassError), runs.record_run(home, "second", "backfill", {}):
        raise OneclassError("broken")
    execute_statement(home, "update operations.runs set state = 'running' where run_id = 'second'")  # as if killed
    with runs.record_run(home, "third", "backfill", {}):
        found = query_rows(home, "select run_id, state, ended_at is null from operations.runs order by run_id")
    assert found == [("first", "completed", False), ("second", "crashed", False), ("third", "running", True)]


STRANGER = """
import duckdb, sys
duckdb.connect(sys.argv[1]).execute("insert into raw.rejects values (2, 1, 'line', 'reason')")
"""


def other_program_writes(home):
    program = [sys.executable, "-c", STRANGER, str(home.warehouse)]
    return subprocess.run(program, check=False, capture_output=True).returncode == 0


def test_openings_of_a_process_share_the_warehouse_and_the_last_one_closes_it(home):
    with warehouse.open_warehouse(home) as outer:
        reject_line(outer)
        with warehouse.open_warehouse(home) as inner:
            reject_line(inner)
            for connection in (outer, inner):
                assert connection.execute("select count(*) from raw.rejects").fetchone() == (2,)
        reject_line(outer)
        assert not other_program_writes(home)
        refuses, hasty = pytest.raises(InputError, match="holds the warehouse"), replace(home.limits, patience=0.05)
        with refuses, warehouse.open_warehouse(replace(home, limits=hasty), read_only=True):
            pass
    assert other_program_writes(home)


def test_the_limits_hold_and_a_spill_leaves_no_file(home, tmp_path):
    small = replace(home, root=tmp_path / "it's small", limits=replace(home.limits, threads=1, memory=30_000_000))
    with warehouse.open_warehouse(small) as connection:
        names = "threads", "memory_limit", "temp_directory", "autoload_known_extensions", "autoinstall_known_extensions"
        settings = [connection.execute(f"select current_setting('{name}')").fetchone()[0] for name in names]
        assert settings == [1, "28.6 MiB", str(small.spill), False, False]
        connection.execute("create temp table much as select hash(range) as a from range(5_000_000)")
        assert list(small.spill.glob("*"))
    assert not list(small.spill.glob("*"))
