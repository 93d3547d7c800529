"""What needs more memory than there is: refused or named, with what there is."""

import weakref

import numpy as np
import pytest

from oneclass.tasks import memory_errors
from oneclass.tasks.errors import OneclassError, ResourceExhausted
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Limits
from oneclass.tasks.train import is_model_error
from tests.short_memory import limit_memory

ROOM = 100 << 20


@pytest.mark.parametrize(("needed", "said"), [(5_000_000_000, "5.1 GB"), (60_000_000, "116 MB")])
def test_a_model_that_needs_more_than_there_is_is_refused_before_it_begins(needed, said):
    """What the kernels of a fit take counts too."""
    with (
        limit_memory(ROOM),
        pytest.raises(OneclassError, match=rf"m: needs about {said} of memory, and \d+ MB are free of"),
        memory_errors.guard_model_memory("m", needed),
    ):
        raise AssertionError("it began")
    with limit_memory(ROOM), memory_errors.guard_model_memory("m", ROOM // 4):
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
        memory_errors.guard_model_memory("m"),
    ):
        work()
    assert is_model_error(error.value) and "MB are free of" in str(error.value)
    assert held[0]() is None
    with (  # a stage that runs out is nothing of a model
        limit_memory(ROOM),
        pytest.raises(ResourceExhausted, match="split: ran out of memory") as error,
        memory_errors.memory_errors("split"),
    ):
        np.ones(ROOM)
    assert not is_model_error(error.value)


def test_duckdb_that_has_too_little_memory_says_which_flag_gives_it_more(home):
    small = type(home)(home.root, home.dataset, Limits(threads=1, memory=20_000_000))
    much = "create temp table much as select range as a, hash(range) as b from range(20_000_000)"
    with (
        pytest.raises(ResourceExhausted, match=r"more memory than there is. It may take 20 MB \(--memory\), and"),
        warehouse.open_warehouse(small) as connection,
    ):
        connection.execute("set temp_directory = ''")
        connection.execute(much)
