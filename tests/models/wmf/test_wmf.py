"""Weighted matrix factorization, with explicit negatives and without, against loss and normal equations."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.blend import Blend, BlendSettings
from oneclass.models.fit_options import DEFAULT_OPTIONS, FitOptions
from oneclass.models.numerics.threads import kernel_threads
from oneclass.models.wmf.model import WMF, WMFSettings
from oneclass.models.wmf.normal_equations import Loss, RowSystems, draw_factor_table, factor_view

LIKES = Loss(0.1, 0.005)
TARGETS = Loss(0.1, 0.005, has_targets=True)  # the values of the matrix are the targets

losses = pytest.mark.parametrize("loss", [LIKES, TARGETS], ids=["likes", "weak likes"])
solvers = pytest.mark.parametrize("steps", [2, 40], ids=["two steps", "to the end"])


@dataclass
class Problem:
    """A count matrix, weights of its users, factors of both sides, and the loss in dense float64."""

    counts: csr_matrix
    loss: Loss
    weights: np.ndarray
    factors: int

    def __post_init__(self):
        self.users = RowSystems(self.counts, self.loss, self.weights, None)
        self.items = RowSystems(self.counts.T.tocsr(), self.loss, None, self.weights)
        self.of_users, self.of_items = (
            draw_factor_table(count, self.factors, 1.0, 3, name) for count, name in zip(self.counts.shape, "ab")
        )

    def half_passes(self, steps, passes=1):
        """Solve the users, then the items, yielding after each."""
        for _ in range(passes):
            with kernel_threads(1):
                self.users.solve(self.of_users, self.of_items, self.factors, steps)
                yield factor_view(self.of_users, self.factors)
                self.items.solve(self.of_items, self.of_users, self.factors, steps)
                yield factor_view(self.of_items, self.factors)

    def penalties(self):
        liked, weights = self.counts.toarray() > 0, self.weights[:, None]
        penalty, alpha0 = self.loss.regularization, self.loss.unobserved
        of_users = self.weights * penalty * (liked.sum(axis=1) + alpha0 * liked.shape[1])
        return of_users, penalty * ((weights * liked).sum(axis=0) + alpha0 * self.weights.sum())

    def targets(self):
        """The observed pairs, and what they are fitted to; zeros elsewhere."""
        counts = self.counts.toarray().astype(float)
        return counts > 0, counts if self.loss.has_targets else 1.0 * (counts > 0)

    def total(self):
        """The loss in the docstring of models.wmf."""
        liked, target = self.targets()
        u, v = (factor_view(table, self.factors).astype(float) for table in (self.of_users, self.of_items))
        terms = liked * (u @ v.T - target) ** 2 + self.loss.unobserved * (u @ v.T) ** 2
        of_users, of_items = self.penalties()
        return (self.weights[:, None] * terms).sum() + of_users @ (u**2).sum(axis=1) + of_items @ (v**2).sum(axis=1)

    def solved_users(self):
        """The normal equations, eq. 4 of Hu et al., solved for every user."""
        liked, target = self.targets()
        v = factor_view(self.of_items, self.factors).astype(float)
        ridges, confidence = self.penalties()[0] / self.weights, self.loss.unobserved + liked
        return np.stack(
            [
                np.linalg.solve(v.T @ (c[:, None] * v) + ridge * np.eye(self.factors), v.T @ t)
                for c, t, ridge in zip(confidence, target, ridges)
            ]
        )


def draw_problem(long_tailed, loss, factors=21):
    """Counts 1 to 4, an isolated user and an isolated item, and unequal weights of users."""
    counts = long_tailed[:90].toarray() * np.random.default_rng(1).integers(1, 5, (90, 120))
    counts[7], counts[:, 11] = 0, 0
    weights = np.random.default_rng(2).uniform(0.5, 2.0, 90)
    return Problem(csr_matrix(counts.astype(np.float32)), loss, weights, factors)


def assert_close(found, expected, tolerance=1e-4):
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@losses
@pytest.mark.parametrize("factors", [1, 16, 21, 130])
def test_as_many_steps_as_factors_solve_the_normal_equations(loss, factors, long_tailed):
    given = draw_problem(long_tailed, loss, factors)
    assert_close(next(given.half_passes(factors)), given.solved_users())


@losses
@solvers
def test_half_a_pass_never_raises_the_loss(loss, steps, long_tailed):
    given = draw_problem(long_tailed, loss, 40)
    before = given.total()
    for _ in given.half_passes(steps, passes=6):
        now = given.total()
        assert now <= before * (1 + 1e-6)
        before = now


def test_folding_in_solves_the_users_of_the_last_items(long_tailed):
    model = WMF(WMFSettings(factors=21, iterations=3, user_weight_exponent=0.7)).fit(long_tailed)
    given = Problem(long_tailed, model._loss(), np.ones(300), 21)
    factor_view(given.of_items, 21)[:] = model.item_factors
    assert_close(model.fold_in(long_tailed), given.solved_users())
    assert_close(model.fold_in(long_tailed[5:9]), given.solved_users()[5:9])


def test_counts_are_not_read(long_tailed):
    twice = long_tailed.copy()
    twice.data *= 2
    one, two = (WMF(factors=8, iterations=2).fit(matrix).item_factors for matrix in (long_tailed, twice))
    np.testing.assert_array_equal(one, two)


def test_factors_that_are_not_finite_are_refused(long_tailed, monkeypatch):
    monkeypatch.setattr("oneclass.models.wmf.model.INITIAL_SCALE", 1e38)
    with pytest.raises(ValueError, match="raise regularization"):
        WMF(factors=8).fit(long_tailed)


def test_settings_left_to_the_log_follow_its_density(long_tailed):
    resolved = WMFSettings().resolve(long_tailed)
    of_twice = WMFSettings().resolve(csr_matrix(np.hstack([long_tailed.toarray(), np.zeros((300, 120))])))
    assert of_twice.unobserved_weight == pytest.approx(resolved.unobserved_weight / 2)
    assert of_twice.regularization == pytest.approx(resolved.regularization)  # 240 items are few too
    likes = csr_matrix(np.random.default_rng(0).random((90, 200)) < 0.4, dtype=np.float32)
    wide = csr_matrix(np.eye(90, 3100) + np.eye(90, 3100, k=1) + np.eye(90, 3100, k=2), dtype=np.float32)
    penalties = [WMFSettings().resolve(matrix).regularization for matrix in (likes, long_tailed, wide)]
    assert penalties == sorted(penalties)  # the largest for short histories over many items
    given = WMFSettings(unobserved_weight=0.2, regularization=0.007)
    assert given.resolve(likes) == given


WEIGHT = 0.3
SETTINGS = {"factors": 8, "unobserved_weight": 0.1, "regularization": 0.01}


@pytest.fixture(autouse=True, scope="module")
def make_all_passes():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oneclass.models.wmf.model.TOLERANCE", 0.0)
        yield


@pytest.fixture(scope="module")
def log():
    """Likes and what was considered, 80 x 40, disjoint; user 5 likes nothing, user 6 considered nothing else, and item
    39 was considered only.
    """
    rng = np.random.default_rng(7)
    kinds = (rng.random((80, 40)) < 1.2 / np.sqrt(np.arange(1, 41))) * (1 + (rng.random((80, 40)) < 0.4))
    kinds[5][kinds[5] == 1] = 0
    kinds[6][kinds[6] == 2] = 0
    kinds[:, 39][kinds[:, 39] == 1] = 2
    return (kinds == 1).astype(float), (kinds == 2).astype(float)


def fit_model(likes, considered=None, threads=1, **more):
    settings = WMFSettings(**{**SETTINGS, "explicit_negative_weight": WEIGHT, **more})
    options = DEFAULT_OPTIONS if considered is None else FitOptions(explicit_negatives=csr_matrix(considered))
    counts = likes * np.random.default_rng(2).integers(1, 4, likes.shape)  # how often an item was liked is not read
    return WMF(settings, seed=3, threads=threads).fit(csr_matrix(counts), options)


def weigh_users(p):
    """The power -0.3 of what a user's targets add up to, of mean one; 1 for a user without any."""
    weights, active = np.ones(len(p)), p.any(axis=1)
    weights[active] = p[active].sum(axis=1) ** -0.3
    weights[active] /= weights[active].mean()
    return weights


def test_items_solve_their_normal_equations(log, monkeypatch):
    """Those of the last half pass: pairs in S pull with p, and all pairs with alpha0."""
    likes, considered = log
    p = likes + WEIGHT * considered
    monkeypatch.setattr("oneclass.models.wmf.model.STEPS", 30)
    model = fit_model(likes, considered, iterations=3)
    u, seen, weights = model.user_factors.astype(float), p > 0, weigh_users(p)
    for item in range(40):
        of_users = weights * (seen[:, item] + 0.1)
        ridge = 0.01 * ((weights * seen[:, item]).sum() + 0.1 * weights.sum())
        solved = np.linalg.solve((of_users[:, None] * u).T @ u + ridge * np.eye(8), u.T @ (weights * p[:, item]))
        np.testing.assert_allclose(model.item_factors[item], solved, atol=2e-4)


@pytest.mark.parametrize("weight", [0.0, WEIGHT], ids=["likes", "weak likes"])
def test_the_loss_falls_to_that_of_the_factors(weight, log):
    likes, considered = log
    values, p = [], likes + weight * considered
    settings = WMFSettings(**SETTINGS, explicit_negative_weight=weight)
    options = FitOptions(
        explicit_negatives=csr_matrix(considered), on_epoch=lambda epoch: values.append(epoch.values["loss"])
    )
    model = WMF(settings, seed=3).fit(csr_matrix(likes), options)
    u, v = model.user_factors.astype(float), model.item_factors.astype(float)
    weights, seen = weigh_users(p), p > 0
    of_users = 0.01 * weights * (seen.sum(axis=1) + 0.1 * p.shape[1])
    of_items = 0.01 * (weights @ seen + 0.1 * weights.sum())
    loss = weights @ (seen * (u @ v.T - p) ** 2 + 0.1 * (u @ v.T) ** 2).sum(axis=1)
    loss += of_users @ (u**2).sum(axis=1) + of_items @ (v**2).sum(axis=1)
    assert values == sorted(values, reverse=True) and values[-1] == pytest.approx(loss, rel=1e-5)


def have_same_factors(one, other):
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("user_factors", "item_factors"))


def test_where_the_log_tells_of_none_or_the_weight_is_0_nothing_changes(log):
    likes, considered = log
    plain, without = fit_model(likes), fit_model(likes, considered, explicit_negative_weight=0.0)
    assert have_same_factors(plain, fit_model(likes, np.zeros_like(likes))) and have_same_factors(plain, without)
    assert not have_same_factors(plain, fit_model(likes, considered))


def test_new_users_are_folded_in_by_their_likes(log):
    """How often they liked an item is not taken for what it is fitted to."""
    model, histories = fit_model(*log), csr_matrix(log[0][:9])
    found, liked = model.fold_in(histories), model.fold_in(histories) @ model.item_factors.T
    np.testing.assert_array_equal(found, model.fold_in(3 * histories))
    assert liked[log[0][:9] > 0].mean() > WEIGHT + 0.1


def test_members_of_a_blend_get_them(log):
    likes, considered = log
    components = [
        {"model": "wmf", "settings": {**SETTINGS, "explicit_negative_weight": WEIGHT}},
        {"model": "mrf_dense"},
    ]
    settings = BlendSettings(components=components)
    assert not WMFSettings().reads_explicit_negatives
    assert settings.reads_explicit_negatives and not BlendSettings().reads_explicit_negatives
    made = Blend(settings, seed=3).fit(csr_matrix(likes), FitOptions(explicit_negatives=csr_matrix(considered)))
    assert have_same_factors(made.components[0], fit_model(likes, considered))
