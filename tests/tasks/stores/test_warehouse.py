"""The warehouse: a transaction a stage, its readers, wrong clocks, errors, and nights that redo what has changed."""

import shutil
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import duckdb
import numpy as np
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
from tests.conftest import execute_statement, flip_bit, query_rows


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
import sys, time
from pathlib import Path
from oneclass.tasks.stores import runs, warehouse
from oneclass.tasks.stores.home import Home
home = Home(Path(sys.argv[1]), "small")
with runs.lock_data_set(home) if sys.argv[2] == "lock" else warehouse.open_warehouse(home):
    print("held", flush=True)
    time.sleep(1.5)
"""


@pytest.mark.parametrize(("what", "message"), [("lock", "another run holds"), ("file", "another process holds")])
def test_a_data_set_held_by_another_process_is_waited_for_and_reported(home, caplog, what, message):
    command = [sys.executable, "-c", HOLDER, str(home.root), what]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        began = time.monotonic()
        hasty = replace(home, limits=replace(home.limits, patience=0.1))
        with pytest.raises(InputError, match=message), runs.lock_data_set(hasty), warehouse.open_warehouse(hasty):
            pass
        with warehouse.open_warehouse(home):
            assert (time.monotonic() - began > 1) == (what == "file")
    assert (f"PID {holder.pid}" in caplog.text) == (what == "file")


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


def test_readers_of_one_publication_share_it_without_write_access(home):
    with runs.record_run(home, "run", "backfill", {}):
        execute_statement(home, "insert into evaluation.metrics values ('run', 'p', 'm', 's', 'k', 1, 0, 1)")
        publish(home, "run", PublicationPlan())
    folder = home.published.resolve()
    for path in (*folder.iterdir(), folder):
        path.chmod(0o550 if path is folder else 0o440)
    with publications.open_published_tables(home) as one, publications.open_published_tables(replace(home)) as other:
        assert one.execute("from metrics").fetchall() == other.execute("from metrics").fetchall() != []
    assert not list(folder.glob("*.wal"))
    folder.chmod(0o750)


def test_the_published_tables_are_readable_from_duckdb_1_2_on(by_model):
    home, _ = by_model
    with duckdb.connect(str(home.published / DATABASE_FILE), read_only=True) as connection:
        (tags,) = connection.execute("select tags from duckdb_databases() where not internal").fetchone()
        assert tags == {"storage_version": "v1.2.0+"}
        tables = [name for (name,) in connection.execute("select table_name from duckdb_tables()").fetchall()]
    assert {"recommendations", "metrics", "histories"} <= set(tables)


NOW = datetime.now(UTC).replace(tzinfo=None)
FLOW = "nightly-retrain"


def test_a_start_in_the_future_is_later_than_nothing_and_put_right_by_the_next_run(home):
    """A night was two days ago, one is recorded in 2031, and one was today."""
    starts = {"before": NOW - timedelta(days=2), "ahead": datetime(2031, 5, 6, 3), "today": NOW - timedelta(hours=4)}
    with warehouse.open_warehouse(home) as connection:
        for run_id, start in starts.items():
            row = [run_id, FLOW, start, start + timedelta(hours=1)]
            connection.execute("insert into operations.runs values (?, ?, 'small', ?, ?, 'completed', '{}', '')", row)
        connection.execute("insert into operations.log_files values (1, 'p', 's', 1, 1, 0, '2031-05-06', null, null)")
    assert runs.find_completed_since(home, datetime.now(UTC) - timedelta(hours=1), FLOW) is None
    assert runs.find_completed_since(home, datetime.now(UTC) - timedelta(hours=5), FLOW) == "today"
    for run_id in ("next", "after that"):
        with runs.record_run(home, run_id, FLOW, {}):
            pass
    [(started, ended)] = query_rows(home, "select started_at, ended_at from operations.runs where run_id = 'ahead'")
    assert started == NOW - timedelta(hours=4)  # as the last run that began in the past
    assert ended <= datetime.now(UTC).replace(tzinfo=None)
    assert query_rows(home, "select max(ingested_at) < '2031-01-01' from operations.log_files") == [(True,)]
    [(run_id, alarm)] = query_rows(home, "from operations.alarms")
    assert run_id == "next" and "run ahead: was recorded as begun at 2031-05-06 03:00 UTC" in alarm


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
    "curated.interactions splits.strong_generalization splits.leave_one_out indexed.users indexed.items "
    "diagnostics.degrees diagnostics.power_law_fits"
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
    return {table: query_rows(home, f"select * from {table} order by all") for table in TABLES.split()}


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


@pytest.mark.slow
def test_tables_and_matrices_that_were_changed_are_made_anew(home, log_events, redone, caplog):
    log_events(EVENTS)
    first = run_stages(home)
    before = tables(home)
    for statement, again in CHANGED_BY_HAND:
        redone.clear(), caplog.clear()
        execute_statement(home, statement)
        run_stages(home)
        assert redone == [again] and tables(home) == before
        assert "changed since; made anew" in caplog.text
    shutil.rmtree(home.matrices / first[1].digests["all_edges"])
    flip_bit(home.matrices / first[1].digests["leave_one_out"] / "train_indices.npy")
    assert run_stages(home) == first and redone[1:] == ["split"]
    assert all(matrices.has_split(home, digest) for digest in first[1].digests.values())
