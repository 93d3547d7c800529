"""Calls that this process makes side by side: their order, how many at a time, their threads, and an error among them."""

import contextvars
import threading
import time
from dataclasses import replace

import numba
import pytest

from oneclass.models.numerics import threads
from oneclass.models.numerics.threads import kernel_threads
from oneclass.tasks.cluster import LOCAL, imap, lru_cache_last
from oneclass.tasks.stores.home import Limits

run = contextvars.ContextVar("run", default="none")


@pytest.fixture
def home(home):
    return replace(home, limits=Limits(threads=2, memory=1 << 30))


def test_answers_come_in_the_order_of_the_calls_with_the_callers_context(home):
    run.set("this one")

    def slow_at_first(home, number):
        time.sleep(0.05 if number % 2 == 0 else 0)
        return number, run.get()

    calls = [(number,) for number in range(9)]
    assert list(imap(LOCAL, slow_at_first, home, calls, label="call")) == [(number, "this one") for number in range(9)]
    assert list(imap(LOCAL, slow_at_first, home, [], label="call")) == []


@pytest.mark.parametrize(
    ("cores", "memory", "serial", "at_a_time", "of_each"),
    [(2, 1, False, 2, 1), (2, 1, True, 1, 2), (2, 600 << 20, False, 1, 2), (1, 1, False, 1, 1)],
)
def test_so_many_at_a_time_as_there_are_threads_and_as_memory_has_room_for(
    home, cores, memory, serial, at_a_time, of_each
):
    home, most = replace(home, limits=replace(home.limits, threads=cores)), []
    at_work = set()

    def call(home, number):
        at_work.add(number)
        time.sleep(0.02)
        most.append(len(at_work))
        at_work.remove(number)
        with kernel_threads(cores):
            return numba.get_num_threads()

    found = list(
        imap(LOCAL, call, home, [(number,) for number in range(6)], label="call", memory=[memory] * 6, serial=serial)
    )
    assert max(most) == at_a_time
    assert found == [min(of_each, numba.config.NUMBA_NUM_THREADS)] * 6


def test_where_one_parallel_kernel_runs_at_a_time_so_does_one_call(home, monkeypatch):
    monkeypatch.setattr(threads.numba.config, "THREADING_LAYER", "workqueue")
    names = list(imap(LOCAL, lambda home: threading.current_thread().name, home, [()] * 4, label="call"))
    assert names == [threading.current_thread().name] * 4


def test_calls_side_by_side_make_what_they_share_once(home):
    made = []

    @lru_cache_last
    def shared(number):
        made.append(number)
        time.sleep(0.02)
        return number

    assert list(imap(LOCAL, lambda home: shared(1), home, [()] * 6, label="call")) == [1] * 6 and made == [1]
    assert (shared(2), shared(2), shared(1)) == (2, 2, 1) and made == [1, 2, 1]
    shared.cache_clear()
    assert shared(1) == 1 and made == [1, 2, 1, 1]


def test_after_a_call_that_fails_those_that_wait_are_not_made(home):
    made = []

    def call(home, number):
        made.append(number)
        time.sleep(0.01)
        if number == 1:
            raise ValueError("the second")

    with pytest.raises(ValueError, match="the second"):
        list(imap(LOCAL, call, home, [(number,) for number in range(30)], label="call"))
    assert max(made) < 10


def test_answers_that_nobody_asks_for_are_not_made_far_ahead(home):
    made = []
    answers = imap(
        LOCAL, lambda home, number: made.append(number), home, [(number,) for number in range(50)], label="call"
    )
    next(answers)
    time.sleep(0.1)
    assert len(made) <= 5
    answers.close()
