"""The simulated cluster against what can be said without it."""

from math import inf

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from benchmarks.cluster.als_messages import counted, vectors
from benchmarks.cluster.events import Cluster, Exchange, sharded, star
from benchmarks.cluster.judging import Judging
from benchmarks.cluster.minibatches import Minibatch
from benchmarks.cluster.plans import CG_STEPS, MINIBATCH, WMF_K, K, Size, plan, random_graph, travels
from benchmarks.cluster.rates import Blocks, Rates
from benchmarks.model_blocks import BYTES
from models.catalogue import MODELS

EXCHANGE = Exchange(down=3e6, up=5e6, work=8.0, own=0.25, handling=0.125, update=2.0)
LINK = Cluster(bandwidth=1e6, latency=0.5, cores=2)


def test_one_block_takes_the_sum_of_its_parts():
    took = star(LINK, [EXCHANGE], 1)
    assert took.seconds == pytest.approx(3 + 0.5 + (8 + 0.25) / 2 + 5 + 0.5 + 0.125 + 2 / 2)
    assert star(LINK, [EXCHANGE] * 3, 1).seconds == pytest.approx(3 * took.seconds)


def test_blocks_of_one_machine_take_the_sum_of_all_work():
    assert star(Cluster(), [EXCHANGE], 4, machines=1).seconds == pytest.approx(8 + 4 * (0.25 + 0.125) + 2)


def test_without_bytes_to_carry_a_pass_takes_the_longest_work():
    took = star(Cluster(bandwidth=inf, latency=0), [Exchange(work=10.0)], 3, shares=[0.2, 0.7, 0.1])
    assert took.seconds == pytest.approx(7)
    assert sharded(Cluster(), [Exchange(work=10.0)], 5).seconds == pytest.approx(2)


def test_without_work_a_pass_takes_the_bytes_of_one_link():
    bare = Exchange(down=3e6, up=5e6)
    # the first answer is under way as soon as the first machine has the items; then the longer direction is never idle
    assert star(LINK, [bare], 1).seconds == pytest.approx(3 + 0.5 + 5 + 0.5)
    assert star(LINK, [bare], 6).seconds == pytest.approx(3 + 0.5 + 6 * 5 + 0.5)
    assert star(LINK, [Exchange(down=5e6, up=3e6)], 6).seconds == pytest.approx(6 * 5 + 0.5 + 3 + 0.5)
    assert sharded(LINK, [bare], 1).seconds == 0
    assert sharded(LINK, [bare], 6).seconds == pytest.approx(5 / 6 * (3 + 5) + 2 * 0.5)


def test_a_message_waits_for_those_of_the_blocks_before_it():
    """The last block is done at once; its message is added behind that of the first, which takes long."""
    took = star(Cluster(), [Exchange(work=10.0, handling=1.0)], 2, shares=[1.0, 0.0])
    assert took.seconds == pytest.approx(10 + 2)


def test_the_wall_is_what_was_busy_longest():
    assert star(LINK, [EXCHANGE], 1).wall == "coordinator's link"
    assert star(LINK, [Exchange(down=1e6, work=100)], 2).wall == "work"
    assert sharded(LINK, [Exchange(up=1e9, work=1)], 2).wall == "a machine's link"


def test_vectors_of_als_are_counted_once_a_block():
    """Users 0 to 2 and items 0 to 3, in two blocks each by their last bit."""
    matrix = csr_matrix([[1, 1, 1, 0], [1, 0, 1, 0], [0, 0, 0, 1]])
    # user 0 to both blocks of items, users 1 and 2 to one; items 0 and 2 to both blocks of users, 1 and 3 to one
    assert counted(matrix, 2) == (2 + 1 + 1) + (2 + 1 + 2 + 1)
    assert counted(matrix, 1) == vectors(matrix.nnz, 3, 4, 1) == 3 + 4


@pytest.mark.parametrize("blocks", [2, 5, 16])
def test_the_formula_of_als_holds_for_equal_degrees(blocks):
    draws = np.random.default_rng(5)
    items = np.concatenate([draws.choice(3_000, 8, replace=False) for _ in range(3_000)])
    matrix = csr_matrix((np.ones(len(items)), (np.repeat(np.arange(3_000), 8), items)))
    assert counted(matrix, blocks) == pytest.approx(vectors(matrix.nnz, *matrix.shape, blocks), rel=0.03)


def test_the_plan_of_random_graph_has_the_bytes_of_its_messages():
    rates = Rates(Blocks(*np.ones((3, 2)), 1.0, 1.0), 1.0, {}, 1.0, 1.0, {}, 1.0, 1.0)
    biases, factors = random_graph(Size(edges=1e3, users=10, items=100), rates)
    assert (biases.down, biases.up, factors.down, factors.up) == (16_800, 1_600, 16_800, 100_800)
    assert biases.work + factors.work == 2 * (1e3 + 10)
    assert biases.handling + factors.handling == pytest.approx(100)


@pytest.mark.parametrize(("model", "element"), [("slim", 8), ("mrf_sparse", 12)])
def test_runs_of_items_read_all_edges_and_at_most_all_rows(model, element):
    rates = Rates(Blocks(*np.ones((3, 2)), 1.0, 1.0), 1.0, {}, 1.0, 1.0, {model: 2.0}, 1.0, 1.0, {model: (3.0, 5.0)})
    size = Size(edges=1e3, users=1e2, items=1e3)  # 5,000 pairs, far fewer than items squared
    edges, rows, gram, found = plan(model, size, rates, 4)
    assert (edges.down, rows.own, rows.work) == (4e3, 5e3, 3.0 * 5_000)
    assert (4 * rows.up, gram.down, found.work) == (element * 10_000, element * 10_000, 2e3)
    assert size.gram_bytes(model, rates) == element * 10_000
    assert Size(edges=1e3, users=1e2, items=50).gram_bytes(model, rates) == element * 2_500


@pytest.mark.parametrize("model", BYTES)
@pytest.mark.parametrize("blocks", [2, 64])
def test_a_plan_has_the_bytes_that_a_fit_by_blocks_sends(model, blocks):
    """By the formulas that `benchmarks.model_blocks` holds against what is sent, but for numbers that no item has."""
    items = 20_000
    chosen = {"wmf": {"factors": WMF_K, "cg_steps": CG_STEPS}, "mrf_dense": {}}.get(model, {"factors": K})
    formula = BYTES[model](MODELS[model].Settings(**chosen), items, blocks)
    assert sum(map(sum, travels(model, items, blocks))) == pytest.approx(formula, rel=2e-3)


def test_the_exchanges_of_a_pass_are_those_that_are_built():
    assert travels("paired_symbols", 1) == [(192, 1_008), (192, 0)]  # the second is for xi* and the bound
    assert travels("wmf", 1) == [(512, 512)] * 4  # the residual, and three steps
    assert travels("binary_matrix", 1) == [(192, 332)] and travels("hpf", 1) == [(80, 80)]
    rates = Rates(None, 2.0, {"paired_symbols": (3.0, 5.0)}, 1.0, 1.0, {}, 1.0, 1.0)
    first, second = plan("paired_symbols", Size(edges=1e3, users=10, items=100), rates, 4)
    assert (first.work, second.work, first.update, second.update) == (3_050, 0, 500, 0)
    assert (first.handling, second.handling) == (2 * 120_000, 2 * 19_200)


def test_a_minibatch_looks_through_all_edges_and_users():
    rates = Rates(None, 1.0, {}, 1.0, 1.0, {}, 1.0, 1.0, minibatch=Minibatch(1.0, 2.0, 3.0, 5.0, 7.0, 11.0, 13.0))
    [one] = plan("binary_matrix", Size(edges=1e3, users=10, items=100), rates, 4)
    assert (one.work, one.own) == (MINIBATCH + 2_030, 5 * MINIBATCH + 700)
    assert (one.handling, one.update) == (1_100, 1_300)


def test_an_evaluation_answers_its_users_once_and_its_items_in_every_call():
    rates = Rates(None, 2.0, {}, 1.0, 1.0, {}, 1.0, 1.0, judging=Judging(3.0, 96.0, 8.0))
    [one] = plan("evaluation", Size(edges=1e6, users=2e4, items=1e4), rates, 4)
    assert one.work == 3 * 2e4 * 1e4 and one.down == 512 * 3e4 + 1e6
    calls = 11  # of 1,881 users: nine blocks of 209, which fill 8 MB with scores
    assert 4 * one.up == 96 * 2e4 + 8 * 1e4 * calls
