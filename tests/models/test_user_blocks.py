"""What fits by blocks of users share: where they are cut, and how their arrays are kept between two calls."""

from itertools import pairwise

import numpy as np
import pytest

from models.fitting import FitOptions
from models.user_blocks import Away, added, cut_into_blocks, cuts
from tests.models.block_fits import Backwards


def test_blocks_have_about_equal_numbers_of_edges_and_none_is_empty(long_tailed):
    starts = long_tailed.indptr
    bounds = cuts(starts, 4)
    assert bounds[0][0] == 0 and bounds[-1][1] == 300 and all(a[1] == b[0] for a, b in pairwise(bounds))
    loads = [starts[end] - starts[first] + 8 * (end - first) for first, end in bounds]
    assert max(loads) - min(loads) < 2 * (8 + np.diff(starts).max())
    assert cuts(np.array([0, 1, 2]), 9) == [(0, 1), (1, 2)]


def doubled(block, state, add):
    """A call as a model has it: it reads the users, writes them, and answers."""
    users = block.read(state)["users"]
    block.write(state + 1, {"users": 2 * users + add, "same": block.read(state)["same"]})
    return block.number, users.sum()


@pytest.fixture
def begun(long_tailed, tmp_path):
    with cut_into_blocks(long_tailed, 3, "terms", FitOptions(workers=Backwards(), scratch=tmp_path), "any") as blocks:
        blocks.begin({"users": np.arange(300.0), "same": np.arange(600).reshape(300, 2)})
        yield blocks
    assert not list(tmp_path.iterdir())


def test_blocks_keep_what_their_calls_write_and_a_call_that_is_made_twice_writes_the_same(begun):
    assert [number for number, _ in begun.ask(doubled, 1.0, writes=True)] == [0, 1, 2]
    np.testing.assert_array_equal(begun.gathered()["users"], 2 * np.arange(300.0) + 1)
    np.testing.assert_array_equal(begun.gathered()["same"], np.arange(600).reshape(300, 2))
    np.testing.assert_array_equal(Away(begun, "users")[np.array([7, 3])], [15, 7])


def test_some_blocks_are_asked_and_the_others_stay(begun):
    begun.ask(doubled, 0.0, of=begun[1:2], writes=True)
    middle, users = begun[1], np.arange(300.0)
    users[middle.first : middle.end] *= 2
    np.testing.assert_array_equal(begun.gathered()["users"], users)


def test_two_writes_of_a_block_are_kept(begun, tmp_path):
    for _ in range(4):
        begun.ask(doubled, 0.0, writes=True)
    names = sorted(file.name for file in tmp_path.glob("*/*"))
    assert names == [f"block-{number}-{state}.npz" for number in range(3) for state in (3, 4)]


def test_a_block_has_its_rows_and_refuses_those_of_another_matrix(begun, long_tailed):
    for block in begun:
        assert (block.matrix(120) != long_tailed[block.first : block.end]).nnz == 0
    with pytest.raises(ValueError, match=r"rows 0 to \d+ came as a matrix of .*90 columns"):
        begun[0].matrix(90)


def test_parts_are_added_in_float64_in_their_order():
    parts = [np.array([1e8], np.float32), np.array([1.0], np.float32), np.array([-1e8], np.float32)]
    assert added(parts) == 1.0 and added(parts).dtype == np.float64
    assert parts[0] == 1e8
