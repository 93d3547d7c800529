"""`compile_ahead`: what the other process compiles is what a run needs, and it ends with the run."""

import json
import os
import subprocess
import sys
import time

import pytest

from oneclass.models.registry import MODELS
from oneclass.tasks.orchestration import precompile
from oneclass.tasks.stores.home import Limits

WIDE = Limits(threads=2, memory=4 << 30)
AFTERWARDS = """
import json, sys
import numpy as np
from numba.core import event
from scipy.sparse import random
from oneclass.models.registry import MODELS

class Compiled(event.Listener):
    found = []
    def on_start(self, it): self.found.append(it.data["dispatcher"].py_func.__qualname__)
    def on_end(self, it): pass

event.register("numba:compile", Compiled())
for name in sys.argv[1:]:
    log = random(300, 90, 0.1, "csr", dtype=np.float32, random_state=1)
    log.data[:] = 1
    model = MODELS[name](threads=2).fit(log[50:])
    model.recommend(log[:50], 10)
    model.recommend(log[50:], 10, users=np.arange(250))
print(json.dumps(Compiled.found))
"""


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))


@pytest.fixture
def begun(monkeypatch):
    """The processes that were begun."""
    found, popen = [], subprocess.Popen

    def kept(*args, **kwargs):
        found.append(popen(*args, **kwargs))
        return found[-1]

    monkeypatch.setattr(precompile.subprocess, "Popen", kept)
    return found


@pytest.mark.slow
def test_what_it_compiled_a_run_need_not_compile(tmp_path, begun):
    chosen = {name: MODELS[name].Settings() for name in ("popularity", "mrf_dense")}
    with precompile.compiling(chosen, WIDE):
        until = time.monotonic() + 200
        while len(list(tmp_path.glob("compiled-*"))) < len(chosen):
            assert time.monotonic() < until
            time.sleep(0.2)
    with precompile.compiling(chosen, WIDE):
        assert len(begun) == 1  # the one of before
    path = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", AFTERWARDS, *chosen], env=path, capture_output=True, check=True)
    assert json.loads(ended.stdout) == []


def test_it_ends_with_the_block_however_that_ends(begun):
    with pytest.raises(KeyError), precompile.compiling({"popularity": MODELS["popularity"].Settings()}, WIDE):
        assert begun[0].poll() is None
        raise KeyError
    assert begun[0].poll() is not None


def test_nothing_is_compiled_ahead_where_it_cannot_be_kept(tmp_path, monkeypatch, begun):
    (tmp_path / "a file").touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "a file" / "cache"))
    with precompile.compiling({"popularity": MODELS["popularity"].Settings()}, WIDE):
        assert begun == []


@pytest.mark.parametrize("limits", [Limits(threads=1, memory=4 << 30), Limits(threads=2, memory=1 << 30)])
def test_a_run_with_one_core_or_little_memory_is_left_alone(limits, begun):
    with precompile.compiling({"popularity": MODELS["popularity"].Settings()}, limits):
        assert begun == []
