"""Openings of one warehouse share a DuckDB instance, which waits for the next opening and holds no file meanwhile."""

import contextlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from oneclass.tasks.errors import InputError
from oneclass.tasks.stores import instances, warehouse

COUNT = "select count(*) from raw.rejects"
STRANGER = """
import duckdb, sys
duckdb.connect(sys.argv[1]).execute("insert into raw.rejects values (2, 1, 'line', 'reason')")
"""


def reject_line(connection):
    connection.execute("insert into raw.rejects values (1, 1, 'line', 'reason')")


def other_program_writes(home):
    program = [sys.executable, "-c", STRANGER, str(home.warehouse)]
    return subprocess.run(program, check=False, capture_output=True).returncode == 0


def instance_of(home):
    return instances._open_files[home.warehouse].instance


def test_a_closed_warehouse_is_free_and_its_instance_opens_the_next(home, tmp_path):
    with warehouse.open_warehouse(home) as connection:
        reject_line(connection)
        connection.execute("create temp table step as select 1")
        first = instance_of(home)
        assert not other_program_writes(home)
    assert other_program_writes(home)
    with warehouse.open_warehouse(home) as connection:
        assert instance_of(home) is first
        assert connection.execute(COUNT).fetchone() == (2,)
        assert connection.execute("select count(*) from duckdb_tables() where temporary").fetchone() == (0,)
    narrow = replace(home, root=tmp_path / "it's another", limits=replace(home.limits, threads=1, memory=300_000_000))
    with warehouse.open_warehouse(narrow) as connection:
        assert instance_of(narrow) is first
        names = "threads", "memory_limit", "temp_directory"
        settings = [connection.execute(f"select current_setting('{name}')").fetchone()[0] for name in names]
        assert settings == [1, "286.1 MiB", str(narrow.spill)]
        assert connection.execute(COUNT).fetchone() == (0,)


def test_an_empty_database_in_memory_takes_an_idle_instance_and_leaves_it_after_an_error(home):
    with warehouse.open_warehouse(home):
        first = instance_of(home)
    for _ in range(2):
        with instances.open_scratch() as connection:
            connection.execute("create schema raw; create table raw.rejects as select 1; set TimeZone = 'Asia/Tokyo'")
            assert connection.execute("select current_setting('memory_limit')").fetchone() != ("976.5 KiB",)
            with instances.open_scratch() as other:
                assert other.execute("from duckdb_tables()").fetchall() == []
                assert other.execute("select current_setting('TimeZone')").fetchone() != ("Asia/Tokyo",)
        assert instances._idle[-1][2] is first
    with pytest.raises(duckdb.CatalogException), instances.open_scratch() as connection:
        connection.execute("from raw.rejects")
    with warehouse.open_warehouse(home) as connection:
        assert instance_of(home) is not first
        assert connection.execute(COUNT).fetchone() == (0,)


def test_openings_of_a_process_share_the_warehouse_and_the_last_one_closes_it(home):
    with warehouse.open_warehouse(home) as outer:
        reject_line(outer)
        with warehouse.open_warehouse(home) as inner:
            reject_line(inner)
            assert outer.execute(COUNT).fetchone() == inner.execute(COUNT).fetchone() == (2,)
        reject_line(outer)
        assert not other_program_writes(home)
    assert other_program_writes(home)


def test_a_warehouse_open_for_writing_is_not_opened_otherwise(home):
    hasty = replace(home, limits=replace(home.limits, patience=0.05))
    with (
        warehouse.open_warehouse(home) as connection,
        pytest.raises(InputError, match="holds the warehouse"),
        warehouse.open_warehouse(hasty, read_only=True),
    ):
        pass
    with pytest.raises(duckdb.ConnectionException):
        connection.execute("select 1")
    with warehouse.open_warehouse(home, read_only=True) as connection:
        assert connection.execute(COUNT).fetchone() == (0,)
        with pytest.raises(duckdb.InvalidInputException, match="read-only"):
            reject_line(connection)


def test_an_instance_that_failed_or_lost_its_threads_is_not_used_again(home, monkeypatch):
    used = []
    for cause in ("", "", "error", "", "fork", ""):
        with monkeypatch.context() as patch, contextlib.suppress(ZeroDivisionError):
            if cause == "fork":
                patch.setattr(os, "getpid", lambda: -1)
            with warehouse.open_warehouse(home):
                used.append(instance_of(home))
                if cause == "error":
                    1 / 0  # noqa: B018
    assert used[0] is used[1] is used[2]
    assert len(set(map(id, used))) == 4


def test_an_instance_that_spilled_leaves_no_file_and_is_not_used_again(home):
    small = replace(home, limits=replace(home.limits, threads=1, memory=30_000_000))
    with warehouse.open_warehouse(small) as connection:
        first = instance_of(small)
        connection.execute("create temp table much as select hash(range) as a from range(5_000_000)")
        assert list(small.spill.glob(instances.TEMPORARY_FILES))
    assert not list(small.spill.glob("*"))
    small.spill.mkdir(exist_ok=True)  # as a stage leaves it
    for _ in range(2):
        with warehouse.open_warehouse(small):
            used = instance_of(small)
    assert used is not first
    with warehouse.open_warehouse(small):
        assert instance_of(small) is used


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_an_idle_instance_gives_its_memory_back(home):
    with warehouse.open_warehouse(home) as connection:
        before = resident_bytes()
        connection.execute("create temp table step as select hash(range) as a from range(12_000_000)")
        assert resident_bytes() > before + 90e6
    assert resident_bytes() < before + 20e6
    with warehouse.open_warehouse(home) as connection:
        assert connection.execute("select current_setting('memory_limit')").fetchone() == ("1023.2 MiB",)
