"""A home: where it may lie, who may read it, what a run may take of the machine, and what needs more than there is."""

import mmap
import os
import stat
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oneclass.tasks.errors import InputError, OneclassError, ResourceExhausted
from oneclass.tasks.publish.plan import PublicationPlan
from oneclass.tasks.publish.stage import publish
from oneclass.tasks.stores import publications, resources, runs, warehouse
from oneclass.tasks.stores.home import FileSettings, Home, Limits, duckdb_memory
from oneclass.tasks.train import is_model_error
from tests.processes import limit_memory

LIMITS = Limits(threads=1, memory=1 << 28)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["md:x", "s3:", "a#b%20", 'it\'s "1" [1]*; é'])
def test_a_home_of_any_other_name_works(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    home = Home(Path(name), "small", LIMITS)
    with runs.record_run(home, "run", "backfill", {}):
        publish(home, "run", PublicationPlan())
    with publications.open_published_tables(home) as connection:
        assert connection.execute("select count(*) from metrics").fetchone() == (0,)
    assert {path.name for path in tmp_path.iterdir()} == {name}
    assert (tmp_path / name / "small" / "warehouse.duckdb").is_file()
    assert (tmp_path / name / "small" / "published" / "recommendations.parquet").is_file()


@pytest.mark.parametrize("name", ["a?b", "a\\b"])
def test_a_home_where_duckdb_keeps_nothing_is_refused(tmp_path, monkeypatch, name):
    with pytest.raises(InputError, match="DuckDB takes such a path for another one. Choose another --home"):
        Home(tmp_path / name, "small")
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / name)
    with pytest.raises(InputError, match="Choose another --home"):
        Home(Path("var"), "small")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("readable_by", "umask", "expected"),
    [
        ("group", 0o022, {0o750, 0o640}),
        ("owner", 0o022, {0o700, 0o600}),
        ("everybody", 0o022, {0o755, 0o644}),
        ("everybody", 0o077, {0o700, 0o600}),  # never more than the process itself would let
    ],
)
def test_who_may_read_what_a_run_writes(home, readable_by, umask, expected):
    before = os.umask(umask)
    try:
        private = replace(home, files=FileSettings(readable_by=readable_by))
        with runs.record_run(private, "run", "backfill", {}):
            publish(private, "run", PublicationPlan())
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    written = [path for path in home.root.rglob("*") if not path.is_symlink()]
    assert {stat.S_IMODE(path.lstat().st_mode) for path in written} == expected


def test_the_limit_of_every_control_group_counts_less_what_it_uses(tmp_path, monkeypatch):
    (tmp_path / "cgroup").write_text("1:name=systemd:/a/b\n0::/a/b\n")
    monkeypatch.setattr(resources, "CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(resources, "CGROUP_MOUNT", mounted := tmp_path / "fs")
    for path, limit in (("", "max"), ("a", "4096"), ("a/b", "8192"), ("other", "1")):
        (mounted / path).mkdir(exist_ok=True)
        (mounted / path / "memory.max").write_text(f"{limit}\n")
    assert resources.memory_limit() == 4096
    group = mounted / "a" / "b"
    (group / "memory.max").write_text("1000")
    (group / "memory.current").write_text("700\n")
    (group / "memory.stat").write_text("anon 200\ninactive_file 300\nactive_file 150\nfile 460\n")
    assert resources.memory_limit() == 1000 and resources.free_memory() == 750  # what files have in the cache is free


def test_a_limit_of_the_process_itself_counts():
    with limit_memory(200 << 20) as limit:
        assert resources.memory_limit() == limit
        before = resources.free_memory()
        assert 0 < before <= 200 << 20
        # An array might lie in memory that the process has freed and kept.
        with mmap.mmap(-1, 50 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as taken:
            assert before - resources.free_memory() >= len(taken)


@pytest.mark.parametrize(
    ("machine", "taken"),
    [(70 << 30, 10 << 30), (9 << 30, 3 << 30), (1 << 30, 1 << 29), (400_000_000, 100_000_000)],
)
def test_duckdb_takes_a_third_of_what_there_is_and_leaves_a_small_container_room(machine, taken):
    assert duckdb_memory(machine) == taken
    assert Limits().memory == duckdb_memory(resources.memory_limit())
    assert Limits().threads == resources.available_cores()


ROOM = 100 << 20


def test_a_model_that_needs_more_than_there_is_is_refused_before_it_begins():
    """What the kernels of a fit take counts too."""
    with (
        limit_memory(ROOM),
        pytest.raises(OneclassError, match=r"m: needs about 116 MB of memory, and \d+ MB are free of"),
        resources.guard_model_memory("m", 60_000_000),
    ):
        raise AssertionError("it began")
    with limit_memory(ROOM), resources.guard_model_memory("m", ROOM // 4):
        pass


def test_a_model_that_runs_out_of_memory_is_named_with_what_there_is_and_the_error_holds_nothing():
    held = []

    def work():
        first = np.ones(ROOM // 16)
        held.append(weakref.ref(first))
        return first, np.ones(ROOM)

    with (
        limit_memory(ROOM),
        pytest.raises(OneclassError, match=r"m: ran out of memory \(Unable to") as error,
        resources.guard_model_memory("m"),
    ):
        work()
    assert is_model_error(error.value) and "MB are free of" in str(error.value)
    assert held[0]() is None
    with (  # a stage that runs out is nothing of a model
        limit_memory(ROOM),
        pytest.raises(ResourceExhausted, match="split: ran out of memory") as error,
        resources.memory_errors("split"),
    ):
        np.ones(ROOM)
    assert not is_model_error(error.value)


def test_duckdb_that_has_too_little_memory_says_which_flag_gives_it_more(home):
    small = replace(home, limits=Limits(threads=1, memory=20_000_000))
    with (
        pytest.raises(ResourceExhausted, match=r"more memory than there is. It may take 20 MB \(--memory\), and"),
        warehouse.open_warehouse(small) as connection,
    ):
        connection.execute("set temp_directory = ''")
        connection.execute("create temp table much as select range as a, hash(range) as b from range(20_000_000)")
