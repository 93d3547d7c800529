"""Machine code and fingerprints follow the source: what an edit moves, and what equal source shares."""

import importlib
import json
import os
import pkgutil
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from llvmlite.binding import Linkage
from numba import njit, prange
from numba.core import caching
from numba.core.dispatcher import Dispatcher

from oneclass import models
from oneclass.models import fingerprint, numba_cache
from oneclass.models.registry import MODELS
from tests.conftest import flip_bit

SOURCES = {
    "shared/__init__.py": "",
    "shared/sums.py": "import numba\n@numba.njit\ndef plus(x):\n    return x + 1\n",
    "first/__init__.py": "from oneclass.models.first.model import x\n",
    "first/model.py": "import oneclass.models.first.kernels\nx = 1\n",
    "first/helpers.py": "import numba\n@numba.njit\ndef twice(x):\n    return 2 * x\n",
    "first/kernels.py": (
        "import numba\nfrom oneclass.models.first.helpers import twice\nfrom oneclass.models.shared.sums import plus\n"
        "@numba.njit(cache=True)\ndef kernel(x):\n    return plus(twice(x))\n"
    ),
    "second/__init__.py": "",
    "second/kernels.py": (
        "import numba\nfrom oneclass.models.shared.sums import plus\n"
        "@numba.njit(cache=True)\ndef kernel(x):\n    return plus(x)\n"
    ),
}
RUN = """
import json
import oneclass.models.first.kernels as first, oneclass.models.second.kernels as second
import os, pathlib, time
if together := int(os.environ.get("TOGETHER", 0)):  # call the kernels when so many processes have come here
    ready = pathlib.Path(os.environ["XDG_CACHE_HOME"], "ready")
    ready.mkdir(parents=True, exist_ok=True)
    (ready / str(os.getpid())).touch()
    while len(os.listdir(ready)) < together:
        time.sleep(0.001)
found = {name: room.kernel(10) for name, room in (("first", first), ("second", second))}
taken = {name: sum(room.kernel.stats.cache_hits.values()) for name, room in (("first", first), ("second", second))}
print(json.dumps([found, taken]))
"""


@pytest.fixture
def checkout(tmp_path):
    """A tree with what sets numba up, and three small rooms."""
    package = tmp_path / "checkout" / "oneclass" / "models"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    for name in ("__init__.py", "numba_cache.py"):
        shutil.copy(numba_cache.PACKAGE / name, package)
    for name, source in SOURCES.items():
        (package / name).parent.mkdir(exist_ok=True)
        (package / name).write_text(source)
    return package.parents[1]


def run_checkout(checkout, **environment):
    """What each room's kernel gives for 10, and how many compiled kernels were taken from the cache."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_CACHE")}
    mine |= {"PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"} | environment
    done = subprocess.run(
        [sys.executable, "-c", RUN], cwd=checkout, env=mine, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def edit_file(checkout, file, before, after):
    path = checkout / "oneclass" / "models" / file
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))


@pytest.mark.slow
def test_an_edited_helper_in_another_file_recompiles_the_kernels_that_call_it(checkout, tmp_path):
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert run_checkout(checkout, **cache) == [{"first": 21, "second": 11}, {"first": 0, "second": 0}]
    elsewhere = shutil.copytree(checkout, tmp_path / "elsewhere")
    assert run_checkout(elsewhere, **cache) == [{"first": 21, "second": 11}, {"first": 1, "second": 1}]
    edit_file(checkout, "first/helpers.py", "2 * x", "3 * x")
    assert run_checkout(checkout, **cache) == [{"first": 31, "second": 11}, {"first": 0, "second": 0}]
    edit_file(checkout, "shared/sums.py", "x + 1", "x + 5")
    assert run_checkout(checkout, **cache) == [{"first": 35, "second": 15}, {"first": 0, "second": 0}]


@pytest.mark.slow
def test_what_one_process_compiles_others_read_and_damage_is_made_good(checkout, tmp_path):
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    with ThreadPoolExecutor(3) as pool:
        runs = list(pool.map(lambda _: run_checkout(checkout, **cache, TOGETHER="3"), range(3)))
    assert [found for found, _ in runs] == 3 * [{"first": 21, "second": 11}]
    assert run_checkout(checkout, **cache) == [{"first": 21, "second": 11}, {"first": 1, "second": 1}]
    (file,) = (tmp_path / "cache").rglob("*first.kernels*.nbc")
    flip_bit(file)
    assert run_checkout(checkout, **cache) == [{"first": 21, "second": 11}, {"first": 0, "second": 1}]
    assert run_checkout(checkout, **cache) == [{"first": 21, "second": 11}, {"first": 1, "second": 1}]


def test_every_kernel_has_a_place_of_its_own_and_one_over_threads_leaves_pythons_lock_free():
    """With the lock held, a signalled command would wait for the running kernel: its watching thread could not run."""
    found = [name for _, name, _ in pkgutil.walk_packages(models.__path__, "oneclass.models.")]
    modules = [importlib.import_module(name) for name in found if "autoencoders" not in name]  # these may need PyTorch
    dispatchers = {kernel for module in modules for kernel in vars(module).values() if isinstance(kernel, Dispatcher)}
    parallel = [kernel.targetoptions for kernel in dispatchers if kernel.targetoptions.get("parallel")]
    assert len(parallel) > 30 and all(options.get("nogil") for options in parallel)
    kept = [kernel._cache for kernel in dispatchers if kernel.stats.cache_path]
    assert {Path(cache.cache_path) for cache in kept} == {numba_cache.folder()}
    assert not numba_cache.folder().is_relative_to(numba_cache.PACKAGE)
    assert len({cache._impl.filename_base for cache in kept}) == len(kept) > 20


def test_a_kill_while_saving_leaves_the_machine_code_that_was_there(tmp_path, monkeypatch):
    def kill(*_):
        raise KeyboardInterrupt

    cache = caching.IndexDataCacheFile(str(tmp_path), "kernel", "stamp")
    cache.save("a", "code of a")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", kill)
        for key in "ab":
            with pytest.raises(KeyboardInterrupt):
                cache.save(key, "new code")
    assert cache.load("a") == "code of a" and cache.load("b") is None


@njit(fastmath={"reassoc", "contract"})
def dot_product(left, right):
    total = np.float32(0)
    for place in range(len(left)):
        total += left[place] * right[place]
    return total


@njit(parallel=True)
def dot_products(left, right, out):
    for row in prange(len(out)):
        out[row] = dot_product(left[row], right[row])


def test_a_kernel_shares_no_machine_code_with_what_was_compiled_before_it():
    left, right = np.ones((4, 9), np.float32), np.full((4, 9), 2, np.float32)
    out = np.empty(4, np.float32)
    dot_products(left, right, out)
    assert (out == 18).all()
    (made,) = dot_products.overloads.values()
    parts = [one for one in made.library._final_module.functions if "gufunc" in one.name]
    assert parts, "numba no longer puts the body of a loop into its kernel: is models/numba_cache.py still needed?"
    assert [one.linkage for one in parts if not one.is_declaration] == [Linkage.internal] * len(parts)


@pytest.fixture
def package(tmp_path):
    """A copy of `models/` to edit."""
    return shutil.copytree(fingerprint.PACKAGE, tmp_path / "models", ignore=shutil.ignore_patterns("__pycache__"))


@pytest.mark.parametrize(
    "edited, expected",
    [
        ("slim/kernels.py", {"slim"}),
        ("mrf/sparse_kernels.py", {"mrf_dense", "ease", "mrf_sparse"}),
        ("autoencoders/training.py", {"cdae", "mult_dae", "mult_vae"}),
        ("registry.py", set()),
        ("negatives/sampling.py", set(MODELS)),
        ("base.py", set(MODELS)),
        ("numba_cache.py", set(MODELS)),
    ],
)
def test_an_edit_moves_the_models_that_can_see_it(package, edited, expected):
    before = {name: fingerprint.fingerprint_model.__wrapped__(model, package) for name, model in MODELS.items()}
    with (package / edited).open("r+") as file:  # of a file that is there
        file.seek(0, 2)
        file.write("# a comment\n")
    after = {name: fingerprint.fingerprint_model.__wrapped__(model, package) for name, model in MODELS.items()}
    assert {name for name in MODELS if after[name] != before[name]} == expected
