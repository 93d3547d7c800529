"""Negatives of the hidden graph: their law, their numbers, and that no thread changes them."""

import itertools

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.negatives.distributions import AllZeros, CensoredPairs, WithoutReplacement
from oneclass.models.negatives.sampling import build_alias_table, degree_histogram, draw_negatives, histogram_power
from oneclass.models.numerics.adjacency import copy_pattern, partition_shards
from oneclass.models.numerics.threads import kernel_threads
from oneclass.models.paired_symbols.model import PairedSymbols, PairedSymbolsSettings
from oneclass.models.random_graph.model import RandomGraph, RandomGraphSettings

ONLY_REJECTION, ONLY_KEYS = 0, 10**6


def random_likes(users=200, items=40, density=0.2, seed=0):
    rng = np.random.default_rng(seed)
    return csr_matrix(rng.random((users, items)) < rng.uniform(0, 2 * density, users)[:, None])


def sample_negatives(likes, weights, heavy=6, seed=5, iteration=1):
    units = np.arange(len(likes[0]) - 1, dtype=np.uint64)
    table, key = build_alias_table(weights), (seed, iteration)
    return draw_negatives(likes, weights, table, partition_shards(likes[0]), key, units, heavy=heavy)


def inclusion_probabilities(weights, own, count):
    """Exact, by going through every order in which `count` items can be drawn one after another."""
    free = [item for item in range(len(weights)) if item not in own and weights[item] > 0]
    included = np.zeros(len(weights))
    for order in itertools.permutations(free, count):
        probability, left = 1.0, weights[free].sum()
        for item in order:
            probability *= weights[item] / left
            left -= weights[item]
        included[list(order)] += probability
    return included


@pytest.mark.parametrize("heavy", [ONLY_REJECTION, ONLY_KEYS])
@pytest.mark.parametrize("own", [[0, 3], [1, 2, 6]])
def test_inclusion_frequencies_are_those_of_drawing_one_after_another(heavy, own):
    weights = np.array([5, 3, 2, 1, 1, 0.5, 0.2, 0.0])
    users = 20_000
    likes = np.arange(users + 1) * len(own), np.tile(np.array(own, dtype=np.int32), users)
    _, items = sample_negatives(likes, weights / weights.sum(), heavy)
    expected = inclusion_probabilities(weights, own, len(own))
    spread = np.sqrt(expected * (1 - expected) / users)
    assert (np.abs(np.bincount(items, minlength=8) / users - expected) <= 4.5 * spread).all()


@pytest.mark.parametrize("heavy", [ONLY_REJECTION, 6, ONLY_KEYS])
def test_never_an_own_item_nor_one_twice_and_as_many_as_likes(heavy):
    matrix = random_likes(density=0.45)
    weights = degree_histogram(np.bincount(matrix.indices, minlength=40), 1.0)
    starts, items = sample_negatives(copy_pattern(matrix), weights, heavy)
    assert (np.diff(starts) < np.diff(matrix.indptr)).any()  # some users like more than half of all items
    for user in range(matrix.shape[0]):
        own = set(matrix.indices[matrix.indptr[user] : matrix.indptr[user + 1]])
        negatives = items[starts[user] : starts[user + 1]]
        assert len(set(negatives)) == len(negatives) == min(len(own), 40 - len(own))
        assert not own & set(negatives)


def test_bits_do_not_depend_on_threads_and_differ_between_iterations():
    likes = copy_pattern(random_likes())
    weights = degree_histogram(np.bincount(likes[1], minlength=40), 0.5)
    with kernel_threads(1):
        one = sample_negatives(likes, weights)
    with kernel_threads(2):
        two, later = sample_negatives(likes, weights), sample_negatives(likes, weights, iteration=2)
    assert (one[1] == two[1]).all()
    assert (one[1] != later[1]).any()


def test_histogram_power_solves_equation_9():
    for r in (0.5, 1.0, 2.0):
        gamma = histogram_power(r, 2850)
        assert 2850**gamma == pytest.approx(r * 2850)
    assert histogram_power(0.5, 1) == 1.0
    pi = degree_histogram(np.array([4, 0, 1]), 0.5)
    assert pi == pytest.approx([2 / 3, 0, 1 / 3])


@pytest.mark.parametrize("weights", [[1.0], [1, 0, 3, 0.001], [0, 0, 5], list(range(100))])
def test_alias_table_gives_back_its_weights(weights):
    weights = np.array(weights, dtype=float)
    limits, aliases = build_alias_table(weights)
    share = limits.astype(float) / 2**32
    given = share + np.bincount(aliases, 1 - share, minlength=len(weights))
    assert given / len(weights) == pytest.approx(weights / weights.sum(), abs=1e-8)


EDGES = np.array([[1, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]], dtype=np.float32)
TRAIN = csr_matrix(EDGES)
USERS = np.arange(4)
SHARES = np.array([6, 5, 4, 3, 2, 1]) / 21
LAWS = {
    "without_replacement": WithoutReplacement(SHARES),
    "censored": CensoredPairs(EDGES.sum(axis=1) / 13, SHARES, 2.0),
    "zeros": AllZeros(),
}


@pytest.fixture(params=LAWS)
def law(request):
    return LAWS[request.param]


def count_negatives(law, seeds=4000):
    """How often each item is the negative of each user."""
    drawn = np.array([law.draw(TRAIN, USERS, seed) for seed in range(seeds)])
    return np.stack([(drawn == item).mean(axis=0) for item in range(6)], axis=1)


def test_a_user_is_drawn_alike_in_any_block_of_users(law):
    whole = law.draw(TRAIN, USERS, 7)
    assert law.draw(TRAIN, USERS[1:3], 7).tolist() == whole[1:3].tolist()
    assert law.draw(TRAIN, USERS, 7).tolist() == whole.tolist()


def test_once_counted_a_law_reads_the_rows_of_its_users_alone(law):
    counted = law.with_statistics(TRAIN)
    other = csr_matrix(np.vstack([EDGES[:2], 5 * EDGES[3:], EDGES[2:3]]))
    users, likes = USERS[:2], np.full((2, 6), 0.25)
    assert counted.draw(other, users, 7).tolist() == law.draw(TRAIN, users, 7).tolist()
    assert counted.rates(other, users, likes).tolist() == law.rates(TRAIN, users, likes).tolist()
    for found, expected in zip(counted.weights(other, users, USERS[1:3]), law.weights(TRAIN, users, USERS[1:3])):
        assert found.tolist() == expected.tolist()


def test_without_replacement_one_of_as_many_negatives_as_likes():
    found = count_negatives(LAWS["without_replacement"])
    for user, (wanted, seen) in enumerate([(2, [0, 1]), (1, [2]), (2, [0, 1, 2, 3])]):
        assert found[user] == pytest.approx(inclusion_probabilities(SHARES, seen, wanted) / wanted, abs=0.03)
    assert LAWS["without_replacement"].draw(TRAIN, USERS, 0)[3] == -1
    likes, negatives = LAWS["without_replacement"].weights(TRAIN, USERS, np.ones(4))
    assert (likes.tolist(), negatives.tolist()) == ([1, 1, 1, 1], [1, 1, 0.5, 0])


def test_censored_pairs_come_by_share_alone():
    law = LAWS["censored"]
    assert count_negatives(law) == pytest.approx(np.tile(SHARES, (4, 1)), abs=0.03)
    likes, negatives = law.weights(TRAIN, USERS, np.array([3, 1, 1, 1]))
    assert (likes.tolist(), negatives.tolist()) == ([3, 1, 1, 1], [2, 2, 2, 2])
    assert law.rates(TRAIN, USERS, np.zeros((4, 6))).sum() == pytest.approx(2 * TRAIN.nnz)


def test_zeros_come_alike():
    law, free = LAWS["zeros"], EDGES == 0
    expected = free / np.maximum(free.sum(axis=1, keepdims=True), 1)
    assert count_negatives(law) == pytest.approx(expected, abs=0.03)
    assert law.weights(TRAIN, USERS, np.ones(4))[1].tolist() == [2, 5, 0.5, 0]


def test_rates_are_how_often_an_item_is_a_negative():
    """Hajek's approximation; 1 - p(like) is one where the users' likes are what they are."""
    law = LAWS["without_replacement"]
    rates = law.rates(TRAIN, USERS[:3], np.zeros((3, 6)))
    for user, (wanted, seen) in enumerate([(2, [0, 1]), (1, [2]), (2, [0, 1, 2, 3])]):
        free = [item for item in range(6) if item not in seen]
        assert rates[user, free] == pytest.approx(inclusion_probabilities(SHARES, seen, wanted)[free], abs=0.05)
    assert law.rates(TRAIN, USERS[:3], np.full((3, 6), 0.25)) == pytest.approx(0.75 * rates)


def test_fitted_models_tell_their_laws():
    graph = RandomGraph(RandomGraphSettings(factors=2, iterations=2, gamma=0.5)).fit(TRAIN)
    assert graph.negative_distribution().histogram.tolist() == graph.histogram.tolist()
    pairs = PairedSymbols(PairedSymbolsSettings(iterations=2, r=3)).fit(TRAIN).negative_distribution()
    assert pairs.item_shares == pytest.approx(EDGES.sum(axis=0) / 13)
    assert pairs.user_shares == pytest.approx(EDGES.sum(axis=1) / 13)
    assert pairs.r == 3
