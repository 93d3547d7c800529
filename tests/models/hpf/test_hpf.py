"""Hierarchical Poisson factorization against a dense NumPy reading of the equations, phi and all."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import approx_fprime
from scipy.sparse import csr_matrix, random_array
from scipy.special import digamma, gammaln

from oneclass.models.fit_options import FitOptions
from oneclass.models.hpf.ascent import Ascent, digamma_and_log_gamma, draw_initial_posterior
from oneclass.models.hpf.model import HPF, HPFSettings

SETTINGS = HPFSettings(factors=4, a=0.4, a_prime=0.5, b_prime=0.8, c=0.3, c_prime=0.6, d_prime=1.5)
BLOCKS = ("phi", "gamma", "kappa", "lambda", "tau")


def draw_edges(users: int = 30, items: int = 20, density: float = 0.25, seed: int = 0) -> csr_matrix:
    draw = np.random.default_rng(seed)
    matrix = random_array(
        (users, items), density=density, rng=draw, format="csr", data_sampler=lambda size: np.ones(size)
    )
    matrix.sort_indices()
    return csr_matrix(matrix)


def start_ascent(matrix: csr_matrix, settings: HPFSettings = SETTINGS, seed: int = 3) -> Ascent:
    users, items = HPF(settings, seed=seed)._initial_posterior(matrix.shape, None)
    return Ascent(matrix, users, items)


class Dense:
    """The model with its users x items x K phi: block updates and the bound, straight from the equations."""

    def __init__(self, matrix: csr_matrix, state: Ascent, settings: HPFSettings) -> None:
        self.y, self.settings = matrix.toarray(), settings
        self.gamma, self.gamma_rate, self.kappa = (array.astype(float) for array in state.users.posterior)
        self.lam, self.lam_rate, self.tau = (array.astype(float) for array in state.items.posterior)
        self.kappa_shape = settings.a_prime + settings.factors * settings.a
        self.tau_shape = settings.c_prime + settings.factors * settings.c
        self.phi = np.full((*self.y.shape, settings.factors), 1 / settings.factors)

    def update(self, block: str) -> None:
        s = self.settings
        if block == "phi":
            log_theta, log_beta = log_mean(self.gamma, self.gamma_rate), log_mean(self.lam, self.lam_rate)
            phi = np.exp(log_theta[:, None] + log_beta)
            self.phi = phi / phi.sum(axis=2, keepdims=True)
        elif block == "gamma":
            self.gamma = s.a + (self.y[:, :, None] * self.phi).sum(axis=1)
            beta = self.lam / self.lam_rate
            self.gamma_rate = (self.kappa_shape / self.kappa)[:, None] + beta.sum(axis=0)
        elif block == "kappa":
            self.kappa = s.a_prime / s.b_prime + (self.gamma / self.gamma_rate).sum(axis=1)
        elif block == "lambda":
            self.lam = s.c + (self.y[:, :, None] * self.phi).sum(axis=0)
            theta = self.gamma / self.gamma_rate
            self.lam_rate = (self.tau_shape / self.tau)[:, None] + theta.sum(axis=0)
        else:
            self.tau = s.c_prime / s.d_prime + (self.lam / self.lam_rate).sum(axis=1)

    def bound(self) -> float:
        """E log p(y, z, theta, beta, xi, eta) - E log q, each expectation written out on its own."""
        s = self.settings
        theta, beta = self.gamma / self.gamma_rate, self.lam / self.lam_rate
        log_theta, log_beta = log_mean(self.gamma, self.gamma_rate), log_mean(self.lam, self.lam_rate)
        allocation = self.phi * (log_theta[:, None] + log_beta - np.log(self.phi))
        total = (self.y * allocation.sum(axis=2)).sum() - gammaln(self.y + 1).sum() - (theta @ beta.T).sum()
        kappa = np.full(len(self.kappa), self.kappa_shape)
        tau = np.full(len(self.tau), self.tau_shape)
        total += prior_bound(self.gamma, self.gamma_rate, s.a, kappa / self.kappa, log_mean(kappa, self.kappa))
        total += prior_bound(self.lam, self.lam_rate, s.c, tau / self.tau, log_mean(tau, self.tau))
        total += activity_bound(kappa, self.kappa, s.a_prime, s.a_prime / s.b_prime)
        return total + activity_bound(tau, self.tau, s.c_prime, s.c_prime / s.d_prime)


def log_mean(shape, rate):
    """E log x under Gamma(shape, rate)."""
    return digamma(shape) - np.log(rate)


def prior_bound(shape, rate, a, activity, log_activity) -> float:
    """E log Gamma(x | a, activity) + H[q(x)] over rows x K."""
    density = a * log_activity[:, None] - gammaln(a) + (a - 1) * log_mean(shape, rate)
    density -= activity[:, None] * shape / rate
    return (density + stats.gamma.entropy(shape, scale=1 / rate)).sum()


def activity_bound(shape, rate, a, b) -> float:
    """E log Gamma(x | a, b) + H[q(x)] over rows."""
    density = a * np.log(b) - gammaln(a) + (a - 1) * log_mean(shape, rate) - b * shape / rate
    return (density + stats.gamma.entropy(shape, scale=1 / rate)).sum()


def run_both(matrix: csr_matrix, number: int):
    """(kernels' state, dense state, bound that the kernels report) after every iteration of both."""
    state = start_ascent(matrix)
    dense = Dense(matrix, state, SETTINGS)
    for _ in range(number):
        bound = state.allocate()
        dense.update("phi")
        assert bound == pytest.approx(dense.bound(), rel=1e-6)
        state.update_users()
        state.update_items()
        for block in BLOCKS[1:]:
            dense.update(block)
        yield state, dense


def test_every_block_agrees_with_the_dense_equations():
    for state, dense in run_both(draw_edges(), 4):
        exact = dense.gamma, dense.gamma_rate, dense.kappa, dense.lam, dense.lam_rate, dense.tau
        for ours, theirs in zip((*state.users.posterior, *state.items.posterior), exact, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=2e-5)


def test_the_reported_bounds_rise_until_the_relative_change_is_small(monkeypatch):
    monkeypatch.setattr("oneclass.models.hpf.model.TOLERANCE", 1e-4)
    epochs = []
    model = HPF(SETTINGS).fit(draw_edges(), FitOptions(on_epoch=epochs.append))
    bounds = np.array([epoch.values["bound"] for epoch in epochs])
    np.testing.assert_array_equal(bounds, model.bounds)
    changes = np.diff(bounds) / abs(bounds[:-1])
    assert len(epochs) < SETTINGS.max_iterations
    assert changes.min() > -1e-6 and changes[-1] < 1e-4 <= changes[:-1].min()


@pytest.mark.parametrize("x", [0.05, 0.3, 1.0, 5.9999, 6.0, 47.3, 1e6])
def test_digamma_and_log_gamma(x):
    assert digamma_and_log_gamma(x) == pytest.approx((digamma(x), gammaln(x)), rel=1e-10, abs=1e-10)


def test_folding_in_is_the_ascent_of_theta_with_the_items_fixed(monkeypatch):
    monkeypatch.setattr("oneclass.models.hpf.model.FOLD_IN_UPDATES", 2000)
    monkeypatch.setattr("oneclass.models.hpf.model.FOLD_IN_TOLERANCE", 0.0)
    model = HPF(SETTINGS).fit(draw_edges())
    unseen = draw_edges(users=5, seed=11)
    dense = Dense(unseen, start_ascent(unseen), SETTINGS)
    dense.lam, dense.lam_rate = model.item_shape.astype(float), model.item_rate.astype(float)
    dense.gamma[:], dense.gamma_rate[:] = 1, 1
    for _ in range(2000):
        for block in BLOCKS[:3]:
            dense.update(block)
    np.testing.assert_allclose(model.fold_in(unseen), dense.gamma / dense.gamma_rate, rtol=2e-3, atol=1e-5)


def test_scores_are_rates_and_training_users_have_their_own_posterior():
    matrix = draw_edges()
    model = HPF(SETTINGS).fit(matrix)
    theta, beta = model.user_shape / model.user_rate, model.item_shape / model.item_rate
    users = np.array([4, 0, 17])
    np.testing.assert_allclose(model.scores(matrix[users], users=users), theta[users] @ beta.T, rtol=1e-5)
    folded = model.fold_in(matrix)
    assert np.corrcoef(folded.ravel(), theta.ravel())[0, 1] > 0.95


def test_the_start_is_the_prior_and_a_uniform_draw_a_number():
    settings = HPFSettings(factors=7, a=0.4, a_prime=2.0, b_prime=5.0)
    shape, rate, activity_rate = draw_initial_posterior(settings.user_prior, 500, seed=1, side="users")
    for numbers, prior in ((shape, 0.4), (rate, 2.0 / 5.0), (activity_rate, 2.0 / 5.0)):
        draws = (numbers - prior).ravel()
        assert stats.kstest(draws, "uniform").pvalue > 0.01
        assert len(np.unique(draws)) > 0.99 * draws.size
    assert abs(np.corrcoef(shape.ravel(), rate.ravel())[0, 1]) < 0.06


def test_of_several_starts_the_fit_with_the_highest_bound_is_kept():
    matrix = draw_edges()
    alone = {seed: HPF(SETTINGS, seed=seed).fit(matrix) for seed in range(5)}
    best = max(alone, key=lambda seed: alone[seed].bounds[-1])
    assert best not in (0, 4)  # neither the first nor the last
    numbers: list[int] = []
    several = SETTINGS.model_copy(update={"starts": 5})
    found = HPF(several, seed=0).fit(matrix, FitOptions(on_epoch=lambda epoch: numbers.append(epoch.number)))
    for name, array in alone[best]._arrays().items():
        np.testing.assert_array_equal(found._arrays()[name], array)
    np.testing.assert_array_equal(found.scores(matrix), alone[best].scores(matrix))
    assert numbers == sorted(numbers) and numbers[-1] <= 5 * several.max_iterations


def test_every_block_is_a_stationary_point_of_the_bound():
    """The slopes of the bound by the logarithm of each number."""
    matrix = draw_edges(users=8, items=6, density=0.4, seed=2)
    dense = Dense(matrix, start_ascent(matrix), SETTINGS)
    arrays = {"gamma": "gamma gamma_rate", "kappa": "kappa", "lambda": "lam lam_rate", "tau": "tau", "phi": "phi"}
    for block, names in arrays.items():
        dense.update(block)
        for name in names.split():
            array = getattr(dense, name)

            def bound(logarithms, name=name, shape=array.shape):
                moved = np.exp(logarithms).reshape(shape)
                setattr(dense, name, moved / moved.sum(axis=2, keepdims=True) if name == "phi" else moved)
                return dense.bound()

            slopes = approx_fprime(np.log(array).ravel(), bound, 1e-6)
            setattr(dense, name, array)
            np.testing.assert_allclose(slopes, 0, atol=1e-4)
