"""Negatives of the models, and the truth that `like` is held against, on graphs small enough to count."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.generator.density_ratio import GroundTruth, solve_odds
from oneclass.models.negatives.distributions import AllZeros, CensoredPairs, WithoutReplacement
from oneclass.models.paired_symbols.model import PairedSymbols, PairedSymbolsSettings
from oneclass.models.random_graph.model import RandomGraph, RandomGraphSettings

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


def frequencies(law, seeds=4000):
    """How often each item is the negative of each user."""
    drawn = np.array([law.draw(TRAIN, USERS, seed) for seed in range(seeds)])
    return np.stack([(drawn == item).mean(axis=0) for item in range(6)], axis=1)


def test_a_user_is_drawn_alike_in_any_block_of_users(law):
    whole = law.draw(TRAIN, USERS, 7)
    assert law.draw(TRAIN, USERS[1:3], 7).tolist() == whole[1:3].tolist()
    assert law.draw(TRAIN, USERS, 7).tolist() == whole.tolist()


def test_once_counted_a_law_reads_the_rows_of_its_users_alone(law):
    counted = law.counted(TRAIN)
    other = csr_matrix(np.vstack([EDGES[:2], 5 * EDGES[3:], EDGES[2:3]]))
    users, likes = USERS[:2], np.full((2, 6), 0.25)
    assert counted.draw(other, users, 7).tolist() == law.draw(TRAIN, users, 7).tolist()
    assert counted.rates(other, users, likes).tolist() == law.rates(TRAIN, users, likes).tolist()
    for found, expected in zip(counted.weights(other, users, USERS[1:3]), law.weights(TRAIN, users, USERS[1:3])):
        assert found.tolist() == expected.tolist()


def one_after_another(wanted, seen):
    """Expected share of each item among `wanted` draws without replacement from what is left of the shares."""

    def taken(left, wanted):
        if not wanted:
            return np.zeros(6)
        total, found = sum(SHARES[item] for item in left), np.zeros(6)
        for item in left:
            rest = taken([one for one in left if one != item], wanted - 1)
            rest[item] += 1
            found += SHARES[item] / total * rest
        return found

    return taken([item for item in range(6) if item not in seen], wanted) / wanted


def test_without_replacement_one_of_as_many_negatives_as_likes():
    found = frequencies(LAWS["without_replacement"])
    for user, (wanted, seen) in enumerate([(2, [0, 1]), (1, [2]), (2, [0, 1, 2, 3])]):
        assert found[user] == pytest.approx(one_after_another(wanted, seen), abs=0.03)
    assert LAWS["without_replacement"].draw(TRAIN, USERS, 0)[3] == -1
    likes, negatives = LAWS["without_replacement"].weights(TRAIN, USERS, np.ones(4))
    assert (likes.tolist(), negatives.tolist()) == ([1, 1, 1, 1], [1, 1, 0.5, 0])


def test_censored_pairs_come_by_share_alone():
    law = LAWS["censored"]
    assert frequencies(law) == pytest.approx(np.tile(SHARES, (4, 1)), abs=0.03)
    likes, negatives = law.weights(TRAIN, USERS, np.array([3, 1, 1, 1]))
    assert (likes.tolist(), negatives.tolist()) == ([3, 1, 1, 1], [2, 2, 2, 2])
    assert law.rates(TRAIN, USERS, np.zeros((4, 6))).sum() == pytest.approx(2 * TRAIN.nnz)


def test_zeros_come_alike():
    law, free = LAWS["zeros"], EDGES == 0
    expected = free / np.maximum(free.sum(axis=1, keepdims=True), 1)
    assert frequencies(law) == pytest.approx(expected, abs=0.03)
    assert law.weights(TRAIN, USERS, np.ones(4))[1].tolist() == [2, 5, 0.5, 0]


def test_rates_are_how_often_an_item_is_a_negative():
    """Hajek's approximation; 1 - p(like) is one where the users' likes are what they are."""
    law = LAWS["without_replacement"]
    rates = law.rates(TRAIN, USERS[:3], np.zeros((3, 6)))
    for user, (wanted, seen) in enumerate([(2, [0, 1]), (1, [2]), (2, [0, 1, 2, 3])]):
        free = [item for item in range(6) if item not in seen]
        assert rates[user, free] == pytest.approx(wanted * one_after_another(wanted, seen)[free], abs=0.05)
    assert law.rates(TRAIN, USERS[:3], np.full((3, 6), 0.25)) == pytest.approx(0.75 * rates)


def test_fitted_models_tell_their_laws():
    graph = RandomGraph(RandomGraphSettings(factors=2, iterations=2, gamma=0.5)).fit(TRAIN)
    assert graph.negative_distribution().histogram.tolist() == graph.weights.tolist()
    pairs = PairedSymbols(PairedSymbolsSettings(iterations=2, r=3)).fit(TRAIN).negative_distribution()
    assert pairs.item_shares == pytest.approx(EDGES.sum(axis=0) / 13)
    assert pairs.user_shares == pytest.approx(EDGES.sum(axis=1) / 13)
    assert pairs.r == 3


def test_considered_odds_give_the_degrees_back():
    random = np.random.default_rng(2)
    edges = random.random((50, 30)) < random.random((50, 1)) * random.random(30)
    degrees = edges.sum(axis=1), edges.sum(axis=0)
    a, b = solve_odds(*degrees)
    odds = np.outer(a, b)
    found = odds / (1 + odds)
    assert found.sum(axis=1) == pytest.approx(degrees[0], abs=1e-5)
    assert found.sum(axis=0) == pytest.approx(degrees[1], abs=1e-5)


def test_like_rates_sum_to_the_users_degrees():
    random = np.random.default_rng(4)
    traits = random.normal(size=(5, 2)), random.normal(size=(40, 2)), random.normal(size=40)
    truth = GroundTruth(*traits, random.random(5), random.random(40))
    degrees = np.array([1, 2, 3])
    rates = truth.training_like_probabilities(np.array([4, 0, 2]), degrees)
    assert rates.sum(axis=1) == pytest.approx(degrees)
    logits = traits[0][4] @ traits[1].T + traits[2]
    odds = truth.user_odds[4] * truth.item_odds
    assert rates[0] == pytest.approx(
        odds / (1 + odds) / (1 + np.exp(-logits)) / (odds / (1 + odds) / (1 + np.exp(-logits))).sum()
    )
