"""What a process may take of the machine, in a control group that the kernel itself keeps to its limit."""

import os
import shutil
import signal
import subprocess
import sys
import weakref

import numpy as np
import pytest

from oneclass.models.registry import MODELS
from oneclass.tasks import memory_errors
from oneclass.tasks.errors import OneclassError, ResourceExhausted
from oneclass.tasks.stores import fits, warehouse
from oneclass.tasks.stores.home import Limits, duckdb_memory
from oneclass.tasks.train import is_model_error, load_or_fit
from tests import control_groups as groups
from tests.conftest import home_in
from tests.short_memory import inflate_cost, limit_memory

LIMIT, FILE = 400 << 20, 100 << 20
SEEN = f"""
import numpy as np

from oneclass.tasks.stores import resources
from oneclass.tasks.stores.home import Limits

print(resources.memory_limit(), Limits().memory)
print(resources.free_memory())
held = np.ones({LIMIT // 4}, dtype=np.int8)
print(resources.free_memory())
"""
WRITES = f"""
import sys
from pathlib import Path

from oneclass.tasks.stores import resources

some = bytes({FILE})
before = resources.free_memory()
Path(sys.argv[1]).write_bytes(some)
print(before, resources.free_memory())
"""
TAKES_TOO_MUCH = f"import numpy as np; np.ones({2 * LIMIT}, dtype=np.int8)"


@pytest.fixture
def group():
    """A control group with a limit of memory; skips the test where none can be made."""
    try:
        with groups.create_group(f"oneclass-test-{os.getpid()}", LIMIT) as made:
            yield made
    except groups.NoGroups as error:
        pytest.skip(str(error))


def run_inside(group, *words):
    command = [sys.executable, "-c", *words]
    return subprocess.run(command, preexec_fn=group.enter, capture_output=True, text=True, check=False)


def numbers_of(ended):
    assert ended.returncode == 0, ended.stderr
    return [int(word) for word in ended.stdout.split()]


def test_a_real_control_group_limits_what_a_process_may_have_and_what_is_free(group):
    may_have, of_duckdb, before, after = numbers_of(run_inside(group, SEEN))
    assert (may_have, of_duckdb) == (LIMIT, duckdb_memory(LIMIT))
    assert LIMIT > before > after > 0
    assert before - after >= 0.9 * LIMIT // 4


def test_what_a_real_control_group_has_of_files_in_the_cache_is_free(group, tmp_path):
    kind = subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True, check=False)
    if kind.stdout.strip() == "tmpfs":
        pytest.skip("memory of files in memory is not released")
    before, after = numbers_of(run_inside(group, WRITES, str(tmp_path / "file")))
    assert before - after < FILE // 4


def test_the_kernel_kills_what_takes_more(group):
    assert run_inside(group, TAKES_TOO_MUCH).returncode == -signal.SIGKILL
    assert group.killed() == 1 and group.most() >= 0.9 * LIMIT


ROOM = 100 << 20


def test_a_model_that_needs_more_than_there_is_is_refused_before_it_begins():
    with (
        limit_memory(ROOM),
        pytest.raises(OneclassError, match=r"m: needs about 5.1 GB of memory, and \d+ MB are free of"),
        memory_errors.guard_model_memory("m", 5_000_000_000),
    ):
        raise AssertionError("it began")
    with limit_memory(ROOM), memory_errors.guard_model_memory("m", ROOM // 4):
        pass


def test_what_the_kernels_of_a_fit_take_counts_too():
    with (
        limit_memory(ROOM),
        pytest.raises(OneclassError, match="m: needs about 116 MB of memory"),
        memory_errors.guard_model_memory("m", 60 * 10**6),
    ):
        raise AssertionError("it began")


def test_a_model_that_runs_out_of_memory_is_named_with_what_there_is_and_the_error_holds_nothing():
    held = []

    def work():
        first = np.ones(ROOM // 16)
        held.append(weakref.ref(first))
        return first, np.ones(ROOM)

    with (
        limit_memory(ROOM),
        pytest.raises(OneclassError, match=r"m: ran out of memory \(Unable to") as error,
        memory_errors.guard_model_memory("m"),
    ):
        work()
    assert is_model_error(error.value) and "MB are free of" in str(error.value)
    assert held[0]() is None


def test_a_stage_that_runs_out_of_memory_is_nothing_of_a_model():
    with (
        limit_memory(ROOM),
        pytest.raises(ResourceExhausted, match="split: ran out of memory") as error,
        memory_errors.memory_errors("split"),
    ):
        np.ones(ROOM)
    assert not is_model_error(error.value)


def test_a_fit_that_ran_out_of_memory_leaves_nothing_and_the_next_goes_on(split_once, tmp_path, monkeypatch):
    shutil.copytree(split_once[0].root, tmp_path / "var")
    home, digest = home_in(tmp_path), split_once[1]
    settings = MODELS["mrf_dense"].Settings(l2=1.0)
    inflate_cost(monkeypatch, MODELS["mrf_dense"])
    before = sorted(home.models.rglob("*.npy"))  # other tests have fitted on this split
    with pytest.raises(OneclassError, match=r"train: mrf_dense \(all_edges\): needs about .* GB of memory"):
        load_or_fit(home, digest, "mrf_dense", settings, 0)
    assert sorted(home.models.rglob("*.npy")) == before
    monkeypatch.undo()
    fit = load_or_fit(home, digest, "mrf_dense", settings, 0)
    assert fits.find_fit(home, "mrf_dense", fit.digest) == fit


def test_duckdb_that_has_too_little_memory_says_which_flag_gives_it_more(home):
    small = type(home)(home.root, home.dataset, Limits(threads=1, memory=20_000_000))
    much = "create temp table much as select range as a, hash(range) as b from range(20_000_000)"
    with (
        pytest.raises(ResourceExhausted, match=r"more memory than there is. It may take 20 MB \(--memory\), and"),
        warehouse.open_warehouse(small) as connection,
    ):
        connection.execute("set temp_directory = ''")
        connection.execute(much)
