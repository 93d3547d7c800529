"""Thread counts are set for a block and put back after it, errors and overlaps included."""

import threading

import numba
import numpy as np
import pytest
from threadpoolctl import threadpool_info

from oneclass.models.numerics import matmul
from oneclass.models.numerics.threads import kernel_threads, limit_threads, map_row_blocks, single_threaded_blas


def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_kernel_threads_are_put_back_after_an_error():
    before = numba.get_num_threads()
    with pytest.raises(KeyError), kernel_threads(1):
        assert numba.get_num_threads() == 1
        raise KeyError
    assert numba.get_num_threads() == before


def test_more_kernel_threads_than_numba_has_are_not_an_error():
    with kernel_threads(10_000):
        assert numba.get_num_threads() == numba.config.NUMBA_NUM_THREADS


def test_a_thread_that_may_have_one_takes_no_more_and_others_are_free():
    found, passed_on = [], set()

    def alone():
        limit_threads(1)
        with kernel_threads(2):
            found.append(numba.get_num_threads())
        rows = np.zeros((40, 20_000))
        map_row_blocks(lambda some: passed_on.add(threading.get_ident()), 2, rows)
        found.append(passed_on == {threading.get_ident()})

    thread = threading.Thread(target=alone)
    thread.start()
    thread.join()
    assert found == [1, True]
    with kernel_threads(2):
        assert numba.get_num_threads() == min(2, numba.config.NUMBA_NUM_THREADS)


def test_two_threads_that_want_single_threaded_blas_take_turns():
    before = blas_threads()
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


def test_kernels_run_on_the_layer_that_was_chosen():
    matmul.dense_times(np.ones((3, 2), dtype=np.float32), np.ones((2, 5), dtype=np.float32))
    assert numba.threading_layer() == numba.config.THREADING_LAYER in ("omp", "workqueue")


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("shape", [(1, 7), (11, 20_000), (3, 100_000), (0, 4)])
def test_each_row_is_passed_over_once(shape, threads):
    rows, passed = np.arange(np.prod(shape), dtype=np.float64).reshape(shape), np.zeros(shape)
    map_row_blocks(lambda some, put: np.add(put, some + 1, out=put), threads, rows, passed)
    np.testing.assert_array_equal(passed, rows + 1)
