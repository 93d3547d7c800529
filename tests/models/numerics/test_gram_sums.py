"""Sums of X' diag(w) X: ten nights of increments against sums from nothing, and their weights against exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from models.fitting import FitOptions
from models.mrf.dense import MRFDense
from models.mrf.sparse import MRFSparse, MRFSparseSettings
from models.numerics import gram_sums
from models.numerics.degree_weights import exact_degree_weights, grain
from models.numerics.gram import lower_gram
from models.numerics.gram_sums import Before
from models.numerics.rescaled_columns import columns, rescaling
from models.slim.model import SLIM

EXPONENTS = [0.0, 0.3, 0.5, 1.0, 1.5, 2.0]


def matrix(edges, users, items):
    """CSR of (user, item) pairs, with a row for each of `users` and a column for each of `items`, in their order."""
    rows = {user: row for row, user in enumerate(users)}
    places = {item: column for column, item in enumerate(items)}
    pairs = [(rows[user], places[item]) for user, item in edges]
    likes = np.zeros((len(users), len(items)), dtype=np.float32)
    likes[tuple(np.array(pairs).T)] = 1
    return csr_matrix(likes)


def filled(interactions, exponent, threads=1, before=None):
    out = np.full(gram_sums.size(interactions.shape[1]), np.nan)
    share = gram_sums.fill(interactions, exponent, threads, out, before)
    return out, share


def changed(edges, generator, night):
    """A night's edges: some are taken back, known and new users like known and new items, and a user leaves."""
    edges = set(edges)
    for edge in generator.permutation(sorted(edges))[: generator.integers(4)]:
        edges.discard(tuple(edge.tolist()))
    users, items = sorted({user for user, _ in edges}), sorted({item for _, item in edges})
    for _ in range(generator.integers(6)):
        edges.add((int(generator.choice(users)), int(generator.choice(items))))
    edges |= {(1000 + night, int(item)) for item in generator.choice(items, generator.integers(1, 4))}
    edges |= {(int(user), 2000 - night) for user in generator.choice(users, generator.integers(3))}  # a column between
    leaving = int(generator.choice(users))
    return {edge for edge in edges if edge[0] != leaving or night % 3}


def wanted_share(edges, before, exponent):
    """Of all pairs of a user's items those of the rows that changed; None where sums from nothing take no longer."""
    now, old = ({user: {item for who, item in some if who == user} for user, _ in some} for some in (edges, before))
    if len({grain(np.array([len(row) for row in rows.values()]), exponent) for rows in (now, old)}) > 1:
        return None
    there = {item for _, item in edges}
    gone = sum(len(row & there) ** 2 for user, row in old.items() if now.get(user) != row)
    come = sum(len(row) ** 2 for user, row in now.items() if old.get(user) != row)
    every = sum(len(row) ** 2 for row in now.values())
    return (gone + come) / every if gone + come < every else None


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(EXPONENTS))
def test_ten_nights_of_increments_have_the_bits_of_sums_from_nothing(seed, exponent):
    generator = np.random.default_rng(seed)
    edges = {(user, int(item)) for user in range(60) for item in generator.choice(25, 1 + user % 9, replace=False)}
    before = None
    for night in range(10):
        users, items = sorted({user for user, _ in edges}), sorted({item for _, item in edges})
        now = matrix(edges, users, items)
        expected, share = filled(now, exponent)
        assert share is None
        if before is not None:
            (old, users_before, items_before), sums, edges_before = before
            rows = [(users_before.index(user), users.index(user)) for user in users if user in users_before]
            places = [items_before.index(item) if item in items_before else -1 for item in items]
            start = Before(old, sums, tuple(np.array(rows).T), np.array(places))
            sums, share = filled(now, exponent, 1, start)
            two, _ = filled(now, exponent, 2, start)
            np.testing.assert_array_equal(sums, expected)
            np.testing.assert_array_equal(two, expected)
            assert share == wanted_share(edges, edges_before, exponent)
        before = (now, users, items), expected if before is None else sums, edges
        edges = changed(edges, generator, night)


def test_users_that_are_taken_for_others_cost_time_and_no_bit(long_tailed):
    now = long_tailed[10:]
    expected, _ = filled(now, 0.5)
    old, _ = filled(long_tailed, 0.5)
    rows, items = np.arange(len(now.indptr) - 1), np.arange(120)
    shares = []
    for first in (10, 9):  # the same users, and each user's neighbour
        sums, share = filled(now, 0.5, 1, Before(long_tailed, old, (rows + first, rows), items))
        np.testing.assert_array_equal(sums, expected)
        shares.append(share)
    assert shares[0] < 0.1 and shares[1] is None


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_any_order_of_additions_and_subtractions_gives_the_exact_sum(exponent):
    generator = np.random.default_rng(3)
    degrees = np.minimum(generator.zipf(1.4, 20_000), 17_770)
    degrees[::7] = 0
    weights = exact_degree_weights(degrees, exponent)
    exact = sum(map(Fraction, weights.tolist()))
    for order in (np.arange(len(weights)), np.argsort(weights), generator.permutation(len(weights))):
        assert Fraction(float(np.cumsum(weights[order])[-1])) == exact
        steps = np.concatenate([weights[order], -weights[order[:9000]]])
        assert Fraction(float(np.cumsum(steps)[-1])) == sum(map(Fraction, weights[order[9000:]].tolist()))


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_the_rounding_of_the_weights_is_below_that_of_float32(exponent):
    """At Netflix's numbers of users and items: of a user's own weight up to exponent 1, of the mean weight for all."""
    degrees = np.minimum(np.random.default_rng(4).zipf(1.3, 480_189), 17_770)
    degrees[0] = 17_770
    weights = exact_degree_weights(degrees, exponent)
    powers = degrees.astype(np.longdouble) ** -np.longdouble(exponent)
    half_a_step = np.finfo(np.float32).eps / 2
    small = degrees <= (17_770 if exponent <= 0.5 else 1000 if exponent <= 1 else 10)
    assert (np.abs(weights - powers) <= half_a_step * powers)[small].all()
    assert np.abs(weights - powers).max() <= half_a_step * powers.mean()
    assert abs(weights.sum() / powers.sum() - 1) <= half_a_step


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_the_gram_matrix_is_that_of_exact_weights_but_for_the_rounding_of_float32(long_tailed, exponent):
    likes = long_tailed.toarray().astype(np.longdouble)
    weights = likes.sum(axis=1) ** -np.longdouble(exponent)
    exact = (likes * (weights / weights.mean())[:, None]).T @ likes
    moments = columns(long_tailed, exponent)
    rescaled = rescaling(moments, 0.0, False)
    found = lower_gram(long_tailed, moments.weights, rescaled.shift, rescaled.factor, 1)
    np.testing.assert_allclose(found, np.tril(exact).astype(np.float64), rtol=np.finfo(np.float32).eps, atol=0)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("kind", [MRFDense, MRFSparse, SLIM])
def test_a_fit_has_the_same_bits_with_kept_sums(kind, centred, long_tailed):
    chosen = {"user_weight_exponent": 0.7} | ({} if kind is SLIM else {"centred": centred})
    asked = []

    def kept(interactions, exponent, threads):
        asked.append(exponent)
        return filled(interactions, exponent, threads)[0]

    expected = kind(kind.Settings(**chosen)).fit(long_tailed).scores(long_tailed)
    for threads in (1, 2):
        model = kind(kind.Settings(**chosen), threads=threads).fit(long_tailed, FitOptions(gram_sums=kept))
        np.testing.assert_array_equal(model.scores(long_tailed), expected)
    assert asked == [0.7, 0.7]


def test_sparse_rows_of_slim_and_a_threshold_of_the_field_read_kept_sums_too():
    generator = np.random.default_rng(5)
    likes = csr_matrix((generator.random((400, 90)) < 0.03).astype(np.float32))
    options = FitOptions(gram_sums=lambda interactions, exponent, threads: filled(interactions, exponent)[0])
    for model in (SLIM(SLIM.Settings(l1=0.01)), MRFSparse(MRFSparseSettings(threshold=0.1, r=0.5, variant="paper"))):
        expected = model.fit(likes).scores(likes)
        np.testing.assert_array_equal(model.fit(likes, options).scores(likes), expected)
        assert 0 < model.weights.nnz < 90 * 89


def test_a_night_with_nothing_new_and_one_with_nobody_left_of_before(long_tailed):
    sums, _ = filled(long_tailed, 0.5)
    rows, items = np.arange(long_tailed.shape[0]), np.arange(120)
    again, share = filled(long_tailed, 0.5, 1, Before(long_tailed, sums, (rows, rows), items))
    np.testing.assert_array_equal(again, sums)
    assert share == 0.0
    nobody = np.zeros(0, dtype=np.int64)
    afresh, share = filled(long_tailed, 0.5, 1, Before(long_tailed, sums, (nobody, nobody), np.full(120, -1)))
    np.testing.assert_array_equal(afresh, sums)
    assert share is None
