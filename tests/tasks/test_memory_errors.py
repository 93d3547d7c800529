"""Memory that is short: what is said of it, and that an error does not keep what it held."""

import shutil
import weakref

import numpy as np
import pytest

from oneclass.models.registry import MODELS
from oneclass.tasks import memory_errors
from oneclass.tasks.errors import OneclassError, ResourceExhausted
from oneclass.tasks.stores import fits, warehouse
from oneclass.tasks.stores.home import Limits
from oneclass.tasks.train import is_model_error, load_or_fit
from tests.conftest import home_in
from tests.short_memory import limited

ROOM = 100 << 20


def test_a_model_that_needs_more_than_there_is_is_refused_before_it_begins():
    with (
        limited(ROOM),
        pytest.raises(OneclassError, match=r"m: needs about 5.1 GB of memory, and \d+ MB are free of"),
        memory_errors.guard_model_memory("m", 5_000_000_000),
    ):
        raise AssertionError("it began")
    with limited(ROOM), memory_errors.guard_model_memory("m", ROOM // 4):
        pass


def test_what_the_kernels_of_a_fit_take_counts_too():
    with (
        limited(ROOM),
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
        limited(ROOM),
        pytest.raises(OneclassError, match=r"m: ran out of memory \(Unable to") as told,
        memory_errors.guard_model_memory("m"),
    ):
        work()
    assert is_model_error(told.value) and "MB are free of" in str(told.value)
    assert held[0]() is None


def test_a_stage_that_runs_out_of_memory_is_nothing_of_a_model():
    with (
        limited(ROOM),
        pytest.raises(ResourceExhausted, match="split: ran out of memory") as told,
        memory_errors.memory_errors("split"),
    ):
        np.ones(ROOM)
    assert not is_model_error(told.value)


def test_a_fit_that_ran_out_of_memory_leaves_nothing_and_the_next_goes_on(split_once, tmp_path, monkeypatch):
    shutil.copytree(split_once[0].root, tmp_path / "var")
    home, digest = home_in(tmp_path), split_once[1]
    settings = MODELS["mrf_dense"].Settings(l2=1.0)
    monkeypatch.setattr(MODELS["mrf_dense"], "item_matrices", 10**9)
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
