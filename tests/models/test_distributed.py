"""Fits by blocks of users: partition, block state, and the fit as a whole."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_matrix, vstack

from oneclass.models.distributed import partition_by_edges, partition_users
from oneclass.models.fit_options import FitOptions
from oneclass.models.random_graph.blocks import message_size
from oneclass.models.random_graph.model import RandomGraph
from tests.models.block_fits import (
    Backwards,
    Processes,
    Scales,
    assert_close,
    assert_same_bits,
    draw_counts,
    shorten_phases,
    store_rows,
)

pytestmark = pytest.mark.slow  # it compiles kernels that only blocks need
SHORT = {"factors": 5, "iterations": 14}
ROUNDED = 2e-5  # blocks add an item's sums in float32
VARIANTS = [{}, {"learn_tau": False}]
TURNS = {"refreshed": 2}


@pytest.fixture(autouse=True)
def short(monkeypatch):
    shorten_phases(monkeypatch)


def fit_model(matrix, *, threads=1, options=None, **settings):
    return RandomGraph(**{**SHORT, **settings}, seed=3, threads=threads).fit(matrix, options or FitOptions())


@pytest.mark.parametrize("count", [3, 7])
@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_blocks_make_the_fit_of_one_machine(long_tailed, settings, count):
    matrix = draw_counts(long_tailed)  # with a user and an item without an edge
    seen = {1: [], count: []}
    one, many = (
        fit_model(matrix, blocks=of, options=FitOptions(on_epoch=epochs.append), **settings)
        for of, epochs in seen.items()
    )
    np.testing.assert_array_equal(one.item_degrees, many.item_degrees)
    assert_close(one, many, ROUNDED)
    for before, after in zip(seen[1], seen[count], strict=True):
        assert before.values == pytest.approx(after.values, rel=1e-6)


@pytest.mark.parametrize("settings", [{}, TURNS], ids=str)
def test_threads_and_calls_in_another_order_or_made_twice_change_no_bit(long_tailed, settings):
    one = fit_model(long_tailed, blocks=5, **settings)
    assert_same_bits(one, fit_model(long_tailed, blocks=5, threads=2, **settings))
    workers = FitOptions(workers=Backwards())
    assert_same_bits(one, fit_model(long_tailed, blocks=5, options=workers, **settings))


def test_a_process_that_is_killed_changes_no_bit_and_leaves_nothing(long_tailed, tmp_path):
    settings = {"iterations": 8, "blocks": 5}
    workers, scratch = Processes(), tmp_path / "seen by all"
    many = fit_model(long_tailed, options=FitOptions(workers=workers, scratch=scratch), **settings)
    workers.pool.shutdown()
    assert workers.killed == 1
    assert_same_bits(many, fit_model(long_tailed, **settings))
    assert not list(scratch.iterdir())


ITEMS = 120


@pytest.mark.parametrize("copies", [1, 6])
def test_items_alone_travel_however_many_users_there_are(long_tailed, tmp_path, copies):
    matrix, scales = csr_matrix(vstack([long_tailed] * copies)), Scales()
    options = FitOptions(workers=scales, rows=store_rows(matrix, tmp_path))
    model = fit_model(matrix, blocks=3, options=options, iterations=4)
    assert max(scales.taken) <= ITEMS * 4 * (2 * 5 + 2) + 3000
    assert max(scales.given) <= ITEMS * 4 * message_size(5) + 1000
    assert_same_bits(model, fit_model(matrix, blocks=3, iterations=4))


def test_blocks_have_about_equal_numbers_of_edges_and_none_is_empty(long_tailed):
    starts = long_tailed.indptr
    bounds = partition_by_edges(starts, 4)
    assert bounds[0][0] == 0 and bounds[-1][1] == 300 and all(a[1] == b[0] for a, b in pairwise(bounds))
    loads = [starts[end] - starts[first] + 8 * (end - first) for first, end in bounds]
    assert max(loads) - min(loads) < 2 * (8 + np.diff(starts).max())
    assert partition_by_edges(np.array([0, 1, 2]), 9) == [(0, 1), (1, 2)]


def double_block(block, state, add):
    """A call as a model has it: it reads the users, writes them, and answers."""
    users = block.read(state)["users"]
    block.write(state + 1, {"users": 2 * users + add, "same": block.read(state)["same"]})
    return block.number, users.sum()


@pytest.fixture
def begun(long_tailed, tmp_path):
    with partition_users(long_tailed, 3, "terms", FitOptions(workers=Backwards(), scratch=tmp_path)) as blocks:
        blocks.write_users({"users": np.arange(300.0), "same": np.arange(600).reshape(300, 2)})
        yield blocks
    assert not list(tmp_path.iterdir())


def test_blocks_keep_what_their_calls_write_and_a_call_that_is_made_twice_writes_the_same(begun):
    assert [number for number, _ in begun.map_blocks(double_block, 1.0, writes=True)] == [0, 1, 2]
    np.testing.assert_array_equal(begun.gather_users()["users"], 2 * np.arange(300.0) + 1)
    np.testing.assert_array_equal(begun.gather_users()["same"], np.arange(600).reshape(300, 2))


def test_some_blocks_are_asked_and_the_others_stay(begun):
    begun.map_blocks(double_block, 0.0, of=begun[1:2], writes=True)
    middle, users = begun[1], np.arange(300.0)
    users[middle.first : middle.end] *= 2
    np.testing.assert_array_equal(begun.gather_users()["users"], users)


def test_two_writes_of_a_block_are_kept(begun, tmp_path):
    for _ in range(4):
        begun.map_blocks(double_block, 0.0, writes=True)
    names = sorted(file.name for file in tmp_path.glob("*/*"))
    assert names == [f"block-{number}-{state}.npz" for number in range(3) for state in (3, 4)]


def test_a_block_has_its_rows_and_refuses_those_of_another_matrix(begun, long_tailed):
    for block in begun:
        assert (block.matrix(120) != long_tailed[block.first : block.end]).nnz == 0
    with pytest.raises(ValueError, match=r"rows 0 to \d+ came as a matrix of .*90 columns"):
        begun[0].matrix(90)
