"""The warehouse: a transaction a stage, its readers, wrong clocks, errors, and nights that redo what has changed."""

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import duckdb
import numpy as np
import polars as pl
import pytest

from oneclass.tasks import diagnose as diagnose_stage
from oneclass.tasks.binarize import stage as binarize_stage
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.errors import InputError
from oneclass.tasks.publish.plan import PublicationPlan
from oneclass.tasks.publish.stage import publish
from oneclass.tasks.split import stage as split_stage
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.stores import matrices, publications, runs, stages, warehouse
from oneclass.tasks.stores.home import Home, Limits
from oneclass.tasks.stores.publications import DATABASE_FILE
from tests.conftest import execute_statement, query_rows


def count_rows(home, table):
    return query_rows(home, f"select count(*) from {table}")[0][0]


def reject_line(connection):
    connection.execute("insert into raw.rejects values (1, 1, 'line', 'reason')")


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


def publish_row(home, run_id):
    with runs.record_run(home, run_id, "backfill", {}):
        execute_statement(home, "insert into evaluation.metrics values (?, 'p', 'm', 's', 'k', 1, 0, 1)", [run_id])
        publish(home, run_id, PublicationPlan())


def test_a_held_warehouse_is_waited_for_and_that_is_said(home, caplog):
    with warehouse.open_warehouse(home):
        pass
    hold = (
        "import duckdb, sys, time; c = duckdb.connect(sys.argv[1], read_only=True); print(flush=True); time.sleep(1.5)"
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
    assert not list(folder.glob("*.wal"))
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


NOW = datetime.now(UTC).replace(tzinfo=None)
FLOW = "nightly-retrain"


def test_a_start_in_the_future_is_later_than_nothing_and_put_right_by_the_next_run(home, caplog):
    """A night was two days ago, one is recorded in 2031 with its other times, and one was today."""
    starts = {"before": NOW - timedelta(days=2), "ahead": datetime(2031, 5, 6, 3), "today": NOW - timedelta(hours=4)}
    with warehouse.open_warehouse(home) as connection:
        for run_id, start in starts.items():
            row = [run_id, FLOW, start, start + timedelta(hours=1)]
            connection.execute("insert into operations.runs values (?, ?, 'small', ?, ?, 'completed', '{}', '')", row)
            night = [run_id, start.date()]
            connection.execute(
                "insert into operations.nights values (?, ?, 'events', 1, true, null, null, 0, null, null)", night
            )
        connection.execute("insert into operations.log_files values (1, 'p', 's', 1, 1, 0, '2031-05-06', null, null)")
        connection.execute(
            "insert into operations.model_settings (run_id, model, origin, reason, settings, searched_on) "
            "values ('ahead', 'slim', 'o', 'r', '{}', '2031-05-06')"
        )
    assert runs.find_completed_since(home, datetime.now(UTC) - timedelta(hours=1), FLOW) is None
    assert runs.find_completed_since(home, datetime.now(UTC) - timedelta(hours=5), FLOW) == "today"
    with runs.record_run(home, "next", FLOW, {}):
        pass
    [(started, ended)] = query_rows(home, "select started_at, ended_at from operations.runs where run_id = 'ahead'")
    assert started == NOW - timedelta(hours=4)  # as the last run that began in the past
    assert ended <= datetime.now(UTC).replace(tzinfo=None)
    assert query_rows(home, "select night from operations.nights where run_id = 'ahead'") == [(started.date(),)]
    assert query_rows(home, "select max(ingested_at) < '2031-01-01' from operations.log_files") == [(True,)]
    assert query_rows(home, "select max(searched_on) < '2031-01-01' from operations.model_settings") == [(True,)]
    [(alarm,)] = query_rows(home, "select alarm from operations.alarms where run_id = 'next'")
    assert "run ahead: was recorded as begun at 2031-05-06 03:00 UTC" in alarm and alarm in caplog.text
    with runs.record_run(home, "after that", FLOW, {}):
        pass
    assert query_rows(home, "select count(*) from operations.alarms") == [(1,)]


@pytest.mark.parametrize(("began", "alarms"), [(datetime(2031, 5, 6), 1), (NOW + timedelta(seconds=20), 0)])
def test_a_first_run_far_in_the_future_is_set_to_the_time_at_which_it_is_found(home, began, alarms):
    """Clocks that differ by seconds are no alarm."""
    with warehouse.open_warehouse(home) as connection:
        row = [FLOW, began]
        connection.execute("insert into operations.runs values ('a', ?, 'small', ?, null, 'completed', '{}', '')", row)
    with runs.record_run(home, "next", FLOW, {}):
        pass
    assert query_rows(home, "select count(*) from operations.alarms") == [(alarms,)]
    (first,), (following,) = query_rows(home, "select started_at from operations.runs order by run_id")
    assert timedelta() <= following - first < timedelta(minutes=1) if alarms else first == began


REWRITES = {
    "binarize": (binarize_stage, "rewrite_interactions"),
    "split": (split_stage, "rewrite_splits"),
    "diagnose": (diagnose_stage, "rewrite_diagnostics"),
}
TABLES = (
    "curated.interactions",
    "splits.strong_generalization",
    "splits.leave_one_out",
    "indexed.users",
    "indexed.items",
    "diagnostics.degrees",
    "diagnostics.power_law_fits",
)
EVENTS = [
    (f"u{user}", f"i{item}", value)
    for user in range(40)
    for item, value in zip(np.random.default_rng(user).choice(25, 9, replace=False), np.arange(9) % 5 + 1, strict=True)
]
CHANGED_BY_HAND = [
    ("update indexed.interactions set event_count = 9 where user_index = 1", "binarize"),
    ("delete from indexed.interactions where user_index = 1", "binarize"),
    ("update indexed.users set user_id = user_id || '!'", "binarize"),
    ("update indexed.leave_one_out set role = 'train'", "split"),
    ("delete from diagnostics.degrees", "diagnose"),
]


@pytest.fixture
def redone(monkeypatch):
    names = []

    def note(name, made, *arguments):
        names.append(name)
        return made(*arguments, **({"replicates": 2} if name == "diagnose" else {}))

    for name, (module, function) in REWRITES.items():
        monkeypatch.setattr(module, function, partial(note, name, getattr(module, function)))
    return names


def run_stages(home, *, threshold=2, seed=3):
    """The stages from binarize to diagnose; what they return."""
    binarized = binarize_stage.binarize(home, BinarizeSettings(threshold=threshold), "r1")
    protocols = ["strong_generalization", "leave_one_out"]
    splits = split_stage.split(home, "r1", split_stage.SplitPlan(SplitSettings(held_out_share=0.2), protocols, seed))
    return binarized, splits, diagnose_stage.diagnose(home, "r1", seed)


def tables(home):
    return {table: query_rows(home, f"select * from {table} order by all") for table in TABLES}


@pytest.mark.slow
def test_a_night_with_nothing_new_redoes_nothing(home, log_events, redone):
    log_events(EVENTS)
    first, before = run_stages(home), tables(home)
    assert redone == ["binarize", "split", "diagnose"]
    assert run_stages(home) == first and tables(home) == before
    log_events([("u1", "disliked", 1)], file_id=2)  # no new edge: it is counted, and no more
    run_stages(home)
    assert redone == ["binarize", "split", "diagnose", "binarize"]
    run_stages(home, seed=4)
    assert redone[4:] == ["split", "diagnose"]
    run_stages(home, threshold=3)
    assert redone[6:] == ["binarize", "split", "diagnose"]
    checked = "select stage, count(*) from operations.contract_results group by stage, rule having count(*) = 5"
    assert {stage for stage, _ in query_rows(home, checked)} >= {"binarize", "split", "diagnose"}


@pytest.mark.slow
def test_tables_that_were_changed_by_hand_are_made_anew(home, log_events, redone, caplog):
    log_events(EVENTS)
    run_stages(home)
    before = tables(home)
    for statement, again in CHANGED_BY_HAND:
        redone.clear(), caplog.clear()
        execute_statement(home, statement)
        run_stages(home)
        assert redone == [again] and tables(home) == before
        assert "changed since; made anew" in caplog.text


@pytest.mark.slow
def test_matrices_that_are_gone_or_damaged_are_made_anew(home, log_events, redone):
    log_events(EVENTS)
    _, splits, _ = run_stages(home)
    shutil.rmtree(home.matrices / splits.digests["all_edges"])
    assert run_stages(home)[1] == splits and redone[3:] == ["split"]
    file = home.matrices / splits.digests["leave_one_out"] / "train_indices.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"\x7f")
    assert run_stages(home)[1] == splits and redone[3:] == ["split", "split"]
    assert matrices.has_split(home, splits.digests["leave_one_out"])
