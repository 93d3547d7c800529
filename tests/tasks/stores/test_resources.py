"""What a process may take of the machine, in a control group that the kernel itself keeps to its limit."""

import os
import signal
import subprocess
import sys

import pytest

from oneclass.tasks.stores.home import duckdb_memory
from tests import control_groups as groups

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
        with groups.group(f"oneclass-test-{os.getpid()}", LIMIT) as made:
            yield made
    except groups.NoGroups as error:
        pytest.skip(str(error))


def inside(group, *words):
    command = [sys.executable, "-c", *words]
    return subprocess.run(command, preexec_fn=group.enter, capture_output=True, text=True, check=False)


def numbers_of(ended):
    assert ended.returncode == 0, ended.stderr
    return [int(word) for word in ended.stdout.split()]


def test_a_real_control_group_limits_what_a_process_may_have_and_what_is_free(group):
    may_have, of_duckdb, before, after = numbers_of(inside(group, SEEN))
    assert (may_have, of_duckdb) == (LIMIT, duckdb_memory(LIMIT))
    assert LIMIT > before > after > 0
    assert before - after >= 0.9 * LIMIT // 4


def test_what_a_real_control_group_has_of_files_in_the_cache_is_free(group, tmp_path):
    kind = subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True, check=False)
    if kind.stdout.strip() == "tmpfs":
        pytest.skip("files in memory are given back to nobody")
    before, after = numbers_of(inside(group, WRITES, str(tmp_path / "file")))
    assert before - after < FILE // 4


def test_the_kernel_kills_what_takes_more(group):
    assert inside(group, TAKES_TOO_MUCH).returncode == -signal.SIGKILL
    assert group.killed() == 1 and group.most() >= 0.9 * LIMIT
