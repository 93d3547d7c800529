"""Thread counts are set for a block and put back after it, errors and overlaps included."""

import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from threadpoolctl import ThreadpoolController, threadpool_info

from oneclass import ItemKNN
from oneclass.models.graph_filter import model
from oneclass.models.graph_filter.graph import DenseSquare
from oneclass.models.numerics import gram_inverse
from oneclass.models.numerics.adjacency import partition_rows, partition_shards
from oneclass.models.numerics.threads import NUMBA_CONFIG, kernel_threads, limit_threads, single_threaded_blas


def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture
def two_blas_threads():
    """Set two threads, not by a limit of threadpoolctl, within which it ignores those of other Python threads."""
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    counts = [library.num_threads for library in libraries]
    for library in libraries:
        library.set_num_threads(2)
    yield
    for library, count in zip(libraries, counts, strict=True):
        library.set_num_threads(count)


def test_a_thread_that_may_have_one_takes_no_more_and_others_are_free():
    found = []

    def alone():
        with limit_threads(1), kernel_threads(2):
            found.append(numba.get_num_threads())

    thread = threading.Thread(target=alone)
    thread.start()
    thread.join()
    assert found == [1]
    with kernel_threads(2):
        assert numba.get_num_threads() == min(2, numba.config.NUMBA_NUM_THREADS)


def test_two_threads_that_want_single_threaded_blas_take_turns(two_blas_threads):
    assert (before := blas_threads()) == {2}
    entered, seen = threading.Event(), []

    def other():
        with single_threaded_blas():
            entered.set()
            seen.append(blas_threads())

    thread = threading.Thread(target=other)
    with single_threaded_blas(), single_threaded_blas():
        thread.start()
        assert not entered.wait(0.2)
        assert blas_threads() == {1}
    thread.join(5)
    assert seen == [{1}]
    assert blas_threads() == before


def test_fits_call_blas_on_one_thread(two_blas_threads, monkeypatch):
    seen = {}

    def watch(module, name):
        function = getattr(module, name)

        def watched(*arguments):
            seen[name] = blas_threads()
            return function(*arguments)

        monkeypatch.setattr(module, name, watched)

    watch(gram_inverse, "_inverse")
    gram_inverse.invert_lower(np.eye(3, dtype=np.float32))
    watch(model, "top_eigenvectors")
    likes = csr_matrix(np.random.default_rng(0).random((20, 10)) < 0.4, dtype=np.float32)
    model.GraphFilter(model.GraphFilter.Settings(low_pass=0.5, vectors=2)).fit(likes)
    square = DenseSquare.of(likes, 0.5, 0.5)
    square._map_rows(lambda start: seen.update(DenseSquare=blas_threads()))
    assert seen == {"_inverse": {1}, "top_eigenvectors": {1}, "DenseSquare": {1}}


DEGREES = st.lists(st.integers(0, 30), min_size=1, max_size=40)


def starts_of(degrees):
    return np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)


def cut_naively(degrees, count, row_cost):
    """Run k ends in front of the first row whose load so far reaches k shares of the total."""
    loads = [sum(degrees[:row]) + row_cost * row for row in range(len(degrees) + 1)]
    bounds = [0]
    for k in range(1, count):
        share = Fraction(loads[-1] * k, count)
        bounds.append(next(row for row, load in enumerate(loads) if load >= share))
    return [*bounds, len(degrees)]


@given(DEGREES, st.sampled_from([1, 2, 8, 16]), st.integers(0, 9))
def test_runs_end_where_the_load_reaches_their_share(degrees, count, row_cost):
    bounds = partition_rows(starts_of(degrees), count, row_cost)
    assert bounds.dtype == np.int64
    assert bounds.tolist() == cut_naively(degrees, count, row_cost)


@given(DEGREES, st.sampled_from([1, 4, 64]))
def test_shards_cover_every_row_once_and_none_is_empty(degrees, count):
    bounds = partition_shards(starts_of(degrees), count)
    assert bounds[0] == 0 and bounds[-1] == len(degrees)
    assert (np.diff(bounds) > 0).all() and len(bounds) <= count + 1
    assert set(bounds.tolist()) == set(cut_naively(degrees, count, 8))


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_child_of_a_process_with_kernels_answers_or_is_refused_if_it_was_forked(method):
    """GNU OpenMP would end the forked one by SIGTERM, and a `multiprocessing.Pool` would wait forever."""
    likes = csr_matrix((np.arange(60).reshape(10, 6) % 7 > 2).astype(np.float32))
    fitted = ItemKNN().fit(likes)
    expected, _ = fitted.recommend(likes, 2)
    with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
        answer = pool.submit(fitted.recommend, likes, 2)
        if method == "fork" and NUMBA_CONFIG.THREADING_LAYER == "omp":
            with pytest.raises(RuntimeError, match=r'was forked .* start processes by .*"forkserver"\) or "spawn"'):
                answer.result()
        else:
            np.testing.assert_array_equal(answer.result()[0], expected)
