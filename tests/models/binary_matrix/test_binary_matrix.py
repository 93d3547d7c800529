"""The binary-matrix model against a dense NumPy reading of the poster's boxes, and where factors vanish."""

import itertools
import warnings

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.binary_matrix.fold_in import ITEMS_PER_STRIP, fold_in, transpose_table
from oneclass.models.binary_matrix.inference import (
    POWER,
    T0,
    Z_VARIANCE,
    BinaryMatrixPosterior,
    BinaryMatrixSettings,
    Inference,
    factors_vanish,
    find_null_solution,
    to_float32,
)
from oneclass.models.binary_matrix.kernels import LANES, LIKELIHOOD, SHARDS, Entries, Grouping, maximise_xi
from oneclass.models.binary_matrix.model import BinaryMatrix
from oneclass.models.binary_matrix.sampling import STRATEGIES, EntrySampler
from oneclass.models.fit_options import FitOptions, Start
from oneclass.models.numerics.adjacency import partition_evenly
from oneclass.models.numerics.simd import pad_width
from oneclass.models.popularity import Popularity

SETTINGS = BinaryMatrixSettings(factors=3, user_variance=0.7, item_variance=0.4, passes=30)


@pytest.fixture(autouse=True)
def small_minibatches(monkeypatch):
    """Begin far from zero, with minibatches for small matrices."""
    monkeypatch.setattr("oneclass.models.binary_matrix.inference.LEAST_BATCH", 50)
    monkeypatch.setattr("oneclass.models.binary_matrix.inference.INITIAL_SCALE", 0.5)


def draw_matrix(users: int = 30, items: int = 20, density: float = 0.25, seed: int = 0) -> csr_matrix:
    """Ones from two tastes and unequal activity and popularity."""
    draw = np.random.default_rng(seed)
    taste = np.where(np.add.outer(np.arange(users), np.arange(items)) % 2, 1.6, 0.4)
    chance = density * taste * draw.uniform(0.3, 1.7, (users, 1)) * draw.uniform(0.3, 1.7, (1, items))
    return csr_matrix((draw.random((users, items)) < chance).astype(float))


def start_inference(x: csr_matrix, settings: BinaryMatrixSettings = SETTINGS, seed: int = 3) -> Inference:
    sampler = EntrySampler.of(x, settings.sampling)
    return Inference(BinaryMatrixPosterior.start(x, settings, seed), sampler, settings, seed)


class Dense:
    """q in float64, the bound over every entry, and single entries' maximizers."""

    def __init__(self, q: BinaryMatrixPosterior, settings: BinaryMatrixSettings) -> None:
        K, width = settings.factors, q.users.shape[1] // 2
        self.u, self.u_var = q.users[:, :K].astype(float), q.users[:, width : width + K].astype(float)
        self.v, self.v_var = q.items[:, :K].astype(float), q.items[:, width : width + K].astype(float)
        self.z, self.z_var = (np.array(value) for value in q.z)
        self.settings = settings

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """E a and 2 lambda at the best xi, of every entry."""
        mean = self.u @ self.v.T + self.z
        variance = self.u_var @ (self.v**2 + self.v_var).T + self.u**2 @ self.v_var.T + self.z_var
        xi = np.sqrt(mean**2 + variance)
        return mean, np.tanh(xi / 2) / (2 * xi)

    def likelihood(self, x: np.ndarray) -> np.ndarray:
        """E log tau(x, xi) of every entry, written with lambda and xi as in box 4."""
        mean, curvature = self.moments()
        second = mean**2 + self.u_var @ (self.v**2 + self.v_var).T + self.u**2 @ self.v_var.T + self.z_var
        xi = np.sqrt(second)
        tau = -np.log1p(np.exp(-xi)) + ((2 * x - 1) * mean - xi) / 2 - curvature / 2 * (second - xi**2)
        return tau

    def bound(self, x: np.ndarray) -> float:
        s, total = self.settings, self.likelihood(x).sum()
        sides = (self.u, self.u_var, s.user_variance), (self.v, self.v_var, s.item_variance)
        for mean, variance, prior in (*sides, (self.z, self.z_var, Z_VARIANCE)):
            expected = -0.5 * (np.log(2 * np.pi * prior) + (mean**2 + variance) / prior)
            total += (expected + 0.5 * np.log(2 * np.pi * np.e * variance)).sum()
        return float(total)

    def row_maximizer(self, x: np.ndarray, i: int, j: int, c: float) -> tuple[np.ndarray, np.ndarray]:
        """(precision x mean, precision) of u_i, one coordinate d at a time, when the entry i, j is drawn."""
        mean, curvature = self.moments()
        natural, precision = np.zeros(self.u.shape[1]), np.zeros(self.u.shape[1])
        for d in range(self.u.shape[1]):
            rest = mean[i, j] - self.u[i, d] * self.v[j, d]
            precision[d] = 1 / self.settings.user_variance
            precision[d] += c * curvature[i, j] * (self.v[j, d] ** 2 + self.v_var[j, d])
            natural[d] = c * self.v[j, d] * (x[i, j] - 0.5 - curvature[i, j] * rest)
        return natural, precision

    def transposed(self) -> "Dense":
        other = object.__new__(Dense)
        other.u, other.u_var, other.v, other.v_var = self.v, self.v_var, self.u, self.u_var
        other.z, other.z_var = self.z, self.z_var
        swap = {"user_variance": self.settings.item_variance, "item_variance": self.settings.user_variance}
        other.settings = self.settings.model_copy(update=swap)
        return other


def sampling_probabilities(x: np.ndarray, strategy: str) -> np.ndarray:
    """Box 7, entry by entry."""
    if strategy == "uniform":
        return np.full(x.shape, 1 / x.size)
    weight = np.ones(x.shape)
    if strategy == "biased":
        for i, j in np.ndindex(x.shape):
            weight[i, j] = (x[i] != x[i, j]).sum() * (x[:, j] != x[i, j]).sum()
    return sum(np.where(x == value, weight, 0) / (2 * weight[x == value].sum()) for value in (0, 1))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_entries_are_drawn_with_their_probabilities_and_carry_their_constants(strategy):
    x = draw_matrix(9, 7, 0.5).toarray()
    sampler = EntrySampler.of(csr_matrix(x), strategy)
    p = sampling_probabilities(x, strategy)
    n = 200_000
    rows, columns, ones, weights = sampler.draw(5, 0, n)
    np.testing.assert_array_equal(ones, x[rows, columns] == 1)
    counts = np.zeros(x.shape)
    np.add.at(counts, (rows, columns), 1)
    assert (abs(counts - n * p) < 5 * np.sqrt(n * p) + 1e-9).all()
    expected = np.array([p.sum(axis=1)[rows], p.sum(axis=0)[columns], np.ones(n)]) / p[rows, columns]
    np.testing.assert_allclose(weights, expected, rtol=1e-5)


def test_zeros_of_a_nearly_full_matrix_are_found():
    x = np.ones((6, 5))
    x[1, 0] = x[1, 4] = x[4, 2] = 0
    rows, columns, ones, _ = EntrySampler.of(csr_matrix(x), "balanced").draw(0, 0, 5000)
    drawn = set(zip(rows[~ones].tolist(), columns[~ones].tolist()))
    assert drawn == {(1, 0), (1, 4), (4, 2)}
    with pytest.raises(ValueError, match="sampling = biased"):
        EntrySampler.of(csr_matrix(np.ones((6, 5))), "biased")


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_minibatch_moves_every_part_towards_its_average_maximizer(strategy):
    settings = SETTINGS.model_copy(update={"sampling": strategy})
    x = draw_matrix()
    steps = start_inference(x, settings)
    steps.minibatch(400)  # so that updates were counted and nothing stands where it started
    before, updates = Dense(steps.q, settings), (steps.q.user_updates.copy(), steps.q.item_updates.copy())
    entries = steps.sampler.draw(3, 1, 300)
    steps.minibatch(300)
    after, dense = Dense(steps.q, settings), x.toarray()
    for old, new, side, t, y, (own, other) in (
        (before, after, 0, updates[0], dense, entries[:2]),
        (before.transposed(), after.transposed(), 1, updates[1], dense.T, entries[1::-1]),
    ):
        for i in range(len(y)):
            drawn = np.flatnonzero(own == i)
            if len(drawn) == 0:
                np.testing.assert_array_equal(new.u[i], old.u[i])
                continue
            best = [old.row_maximizer(y, i, other[s], entries[3][side, s]) for s in drawn]
            natural, precision = np.mean(best, axis=0)
            rho = (T0 + t[i]) ** -POWER
            precision = (1 - rho) / old.u_var[i] + rho * precision
            natural = (1 - rho) * old.u[i] / old.u_var[i] + rho * natural
            np.testing.assert_allclose(1 / new.u_var[i], precision, rtol=1e-4)
            np.testing.assert_allclose(new.u[i], natural / precision, rtol=1e-3, atol=1e-5)
    (mean, curvature), (rows, columns, ones, weights) = before.moments(), entries
    rho = (T0 + 1) ** -POWER
    pulls = weights[2] * curvature[rows, columns]
    slopes = weights[2] * (ones - 0.5) - pulls * (mean[rows, columns] - before.z)
    precision = (1 - rho) / before.z_var + rho * (1 / Z_VARIANCE + pulls.mean())
    assert 1 / after.z_var == pytest.approx(precision, rel=1e-4)
    natural = (1 - rho) * before.z / before.z_var + rho * slopes.mean()
    assert after.z == pytest.approx(natural / precision, rel=1e-3)


def sum_likelihoods(q: BinaryMatrixPosterior, x: csr_matrix) -> float:
    """E log tau(x, xi) of every entry at its best xi, added by the kernel of a minibatch."""
    rows, columns = (places.ravel().astype(np.int32) for places in np.indices(x.shape))
    weights, means, twice_lambdas = np.ones((3, len(rows)), dtype=np.float32)
    entries = Entries(columns, x.toarray().ravel() > 0, weights, means, twice_lambdas)
    sums = np.zeros((SHARDS, 5))
    maximise_xi(Grouping.of(rows, x.shape[0]), entries, q.users, q.items, to_float32(q.z), sums)
    return float(sums[:, LIKELIHOOD].sum())


def test_the_bound_is_that_of_the_dense_equations_and_entries_estimate_it():
    x = draw_matrix(40, 30)
    for strategy in ("uniform", "balanced"):  # biased draws no zero of an empty row
        settings = SETTINGS.model_copy(update={"sampling": strategy})
        steps = start_inference(x, settings)
        steps.run_pass(2000)
        dense = Dense(steps.q, settings)
        bound = sum_likelihoods(steps.q, x) - steps.q.divergence(settings)
        assert bound == pytest.approx(dense.bound(x.toarray()), rel=1e-5)
        assert steps.minibatch(400_000) == pytest.approx(dense.likelihood(x.toarray()).sum(), rel=0.02)


def test_a_training_user_folded_in_is_near_the_trained_one():
    x = draw_matrix(60, 40)
    model = BinaryMatrix(SETTINGS.model_copy(update={"passes": 300})).fit(x)
    assert np.corrcoef(model.q.users[:, :3].ravel(), model.fold_in(x)[:, :3].ravel())[0, 1] > 0.95


def test_scores_are_log_odds_and_the_probability_has_a_spread():
    x = draw_matrix()
    model = BinaryMatrix(SETTINGS).fit(x)
    users, dense = np.array([4, 0, 17]), Dense(model.q, SETTINGS)
    logits = dense.moments()[0][users]
    np.testing.assert_allclose(model.scores(x[users], users=users), logits, rtol=1e-4, atol=1e-5)
    mean, sd = model.like(x[users], users=users)
    assert mean.shape == sd.shape == (3, 20) and mean.dtype == sd.dtype == np.float32
    assert ((mean > 0) & (mean < 1) & (sd > 0) & (sd < 0.5)).all()
    draw = np.random.default_rng(0)
    u, v = (
        draw.normal(m, np.sqrt(s), (40_000, 3)) for m, s in ((dense.u[4], dense.u_var[4]), (dense.v[2], dense.v_var[2]))
    )
    sampled = 1 / (1 + np.exp(-(u * v).sum(axis=1) - draw.normal(dense.z, np.sqrt(dense.z_var), 40_000)))
    assert mean[0, 2] == pytest.approx(sampled.mean(), abs=0.02)
    assert sd[0, 2] == pytest.approx(sampled.std(), rel=0.15)
    pairs = model.like(x[users], users=users, items=np.array([[2, -1], [0, 1], [3, 5]]))[0]
    assert pairs[0, 0] == pytest.approx(mean[0, 2], rel=1e-4) and np.isnan(pairs[0, 1])


ITEMS, FACTORS = ITEMS_PER_STRIP + 200, 5  # two runs of items, and factors that fill no whole group


def draw_problem(scale, users=6, seed=3):
    """A table of items, and dense histories of some users, the first one's empty."""
    generator = np.random.default_rng(seed)
    width = pad_width(FACTORS, LANES)
    items = np.zeros((ITEMS, 2 * width), dtype=np.float32)
    items[:, :FACTORS] = generator.normal(0, scale, (ITEMS, FACTORS))
    items[:, width : width + FACTORS] = generator.uniform(0.01, 0.2, (ITEMS, FACTORS))
    likes = generator.random((users, ITEMS)) < 0.04
    likes[0] = False
    return items, likes


def fold_in_naively(items, likes, z, variance, steps=100, tolerance=1e-6):
    """(E u, var u), both (users, K)."""
    width = pad_width(FACTORS, LANES)
    users = np.empty((len(likes), 2 * width), dtype=np.float32)
    indptr = np.concatenate([[0], np.cumsum(likes.sum(axis=1))])
    indices = np.nonzero(likes)[1].astype(np.int32)
    z, limits = tuple(map(np.float32, z)), (steps, tolerance)
    table = transpose_table(items, FACTORS)
    fold_in(indptr, indices, table, FACTORS, z, 1 / variance, limits, partition_evenly(len(likes), 3), users)
    return users[:, :FACTORS], users[:, width : width + FACTORS]


def by_turns(items, likes, z, variance, updates):
    """Jaakkola's updates of one user: xi, then the best q(u) for it, float64."""
    width = pad_width(FACTORS, LANES)
    v, spread = items[:, :FACTORS].astype(np.float64), items[:, width : width + FACTORS].astype(np.float64)
    mean, own = np.zeros(FACTORS), np.full(FACTORS, variance)
    for _ in range(updates):
        xi = np.sqrt((v @ mean + z[0]) ** 2 + (v**2 + spread) @ own + spread @ mean**2 + z[1])
        pull = np.tanh(xi / 2) / (2 * xi)
        P = v.T @ (pull[:, None] * v) + np.diag(pull @ spread) + np.eye(FACTORS) / variance
        mean, own = np.linalg.solve(P, (likes - 0.5 - pull * z[0]) @ v), 1 / np.diag(P)
    return mean, own


@pytest.mark.slow
@pytest.mark.parametrize("scale, z, variance", [(0.3, (-5, 1e-6), 0.2), (0.5, (-3, 0.1), 1), (3.0, (-8, 0), 100)])
def test_the_maximum_is_that_of_updates_by_turns(scale, z, variance):
    """The last of them has logits of tens: from zero, Newton's first step is too long by far."""
    items, likes = draw_problem(scale)
    means, variances = fold_in_naively(items, likes, z, variance)
    for user, row in enumerate(likes):
        mean, own = by_turns(items, row, z, variance, 3000)
        np.testing.assert_allclose(means[user], mean, rtol=2e-3, atol=2e-3 * np.abs(mean).max())
        np.testing.assert_allclose(variances[user], own, rtol=2e-3)


def test_the_natural_gradient_is_the_gradient_of_the_bound():
    """dL/dE[u] and dL/dE[u^2] are eta* - eta, so dL/dm = (h* - h) - (P* - P) m and dL/dv = -(P* - P) / 2.

    With all of a row's entries and c = 1, h* and P* are the sums of the maximizers; at eta* = eta the bound
    is stationary.
    """
    x = draw_matrix(8, 6, 0.4).toarray()
    q = BinaryMatrixPosterior.start(csr_matrix(x), SETTINGS, 1)
    steps = start_inference(csr_matrix(x))
    steps.q = q
    steps.minibatch(100)
    dense, step = Dense(q, SETTINGS), 1e-5
    for side, y in ((dense, x), (dense.transposed(), x.T)):
        for i, d in np.ndindex(side.u.shape):
            best = [side.row_maximizer(y, i, j, 1.0) for j in range(y.shape[1])]
            natural = sum(b[0][d] for b in best)
            extra = (y.shape[1] - 1) / side.settings.user_variance  # the prior is counted once
            change = sum(b[1][d] for b in best) - extra - 1 / side.u_var[i, d]
            slope_of_mean = natural - side.u[i, d] / side.u_var[i, d] - change * side.u[i, d]
            for array, slope in ((side.u, slope_of_mean), (side.u_var, -change / 2)):
                array[i, d] += step
                above = side.bound(y)
                array[i, d] -= 2 * step
                assert (above - side.bound(y)) / (2 * step) == pytest.approx(slope, rel=1e-4, abs=1e-4)
                array[i, d] += step


def test_less_noise_wants_larger_minibatches(monkeypatch):
    monkeypatch.setattr("oneclass.models.binary_matrix.inference.LEAST_BATCH", 10)
    sizes = []
    for theta_delta in (4.0, 1.0):
        monkeypatch.setattr("oneclass.models.binary_matrix.inference.THETA_DELTA", theta_delta)
        steps = start_inference(draw_matrix(200, 80))
        for _ in range(60):
            steps.minibatch(1000)
        sizes.append(steps.q.progress[1])
    assert sizes[1] / sizes[0] == pytest.approx(4, rel=0.01)


def sparse_log(users: int = 500, items: int = 400, likes: int = 2) -> csr_matrix:
    """Every user likes so few random items that all factors vanish."""
    draw = np.random.default_rng(1)
    x = np.zeros((users, items))
    for row in x:
        row[draw.choice(items, likes, replace=False)] = 1
    return csr_matrix(x)


def test_factors_vanish_where_the_largest_singular_value_is_small():
    verdicts = []
    logs = (
        draw_matrix(30, 20),
        draw_matrix(60, 40),
        sparse_log(80, 90),
        csr_matrix(np.eye(3)),
        csr_matrix(np.ones((5, 4))),
    )
    for x, prior in itertools.product(logs, (0.01, 0.05, 0.1, 0.2, 0.7, 3.0)):
        settings = SETTINGS.model_copy(update={"user_variance": prior, "item_variance": prior})
        null = z, user, item = find_null_solution(x, settings)
        xi = np.sqrt(z**2 + 3 * user * item)
        assert 1 / user == pytest.approx(1 / prior + x.shape[1] * np.tanh(xi / 2) / (2 * xi) * item)
        sigma = np.linalg.svd(x.toarray() - x.mean(), compute_uv=False)[0]
        verdicts.append(factors_vanish(x, null, 0))
        assert verdicts[-1] == (sigma**2 * user * item <= 1)
    assert min(verdicts.count(True), verdicts.count(False)) > 5


def test_a_fit_whose_factors_vanish_ends_at_once_and_ranks_by_popularity(tmp_path):
    x = sparse_log()
    epochs = []
    with pytest.warns(UserWarning, match=r"1,000 likes by 500 users of 400 items .* all factors vanish"):
        BinaryMatrix().fit(x, FitOptions(on_epoch=epochs.append)).save(tmp_path)
    model = BinaryMatrix.load(tmp_path)
    assert not epochs and len(model.bounds) == 0
    expected = Popularity().fit(x).scores(x[:7])
    np.testing.assert_array_equal(model.scores(x[:7]), expected)
    np.testing.assert_array_equal(model.scores(x[:7], users=np.arange(7)), expected)
    np.testing.assert_array_equal(model.fold_in(x[:7]), model.q.users[:7])
    mean, sd = model.like(x[:7])
    assert mean == pytest.approx(np.full(mean.shape, x.nnz / np.prod(x.shape)), rel=0.25) and (sd > 0).all()


def test_a_warm_start_at_vanished_factors_is_a_fit_from_scratch():
    x, grown = sparse_log(60, 40), draw_matrix(60, 40)
    with pytest.warns(UserWarning, match="vanish"):
        vanished = BinaryMatrix(passes=4).fit(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = BinaryMatrix(passes=4).fit(grown, FitOptions(start=Start(vanished, np.arange(60), np.arange(40))))
    np.testing.assert_array_equal(model.q.items, BinaryMatrix(passes=4).fit(grown).q.items)
