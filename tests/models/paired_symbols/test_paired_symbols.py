"""Paired symbols against a dense oracle: all pairs of a small matrix, straight from the equations."""

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix
from scipy.special import digamma, gammaln, log_expit, xlogy

from oneclass.models.negatives.like_probability import item_columns, logit_moments
from oneclass.models.paired_symbols.model import PairedSymbols, PairedSymbolsSettings
from oneclass.models.paired_symbols.posterior import PairedSymbolsPosterior, Symbols


@dataclass
class Dense:
    """A posterior as plain float64 arrays; users and items are [0] and [1]."""

    counts: np.ndarray
    means: list[np.ndarray]
    variances: list[np.ndarray]
    biases: list[np.ndarray]
    bias_variances: list[np.ndarray]
    shares: list[np.ndarray]
    concentrations: list[np.ndarray]
    precisions: list[tuple[float, float]]
    censored: float
    alpha: float
    xi_star: float

    @classmethod
    def of(cls, posterior: PairedSymbolsPosterior, counts: np.ndarray) -> "Dense":
        sides = (posterior.users, posterior.items)
        parts = [[array.astype(np.float64) for array in side.q.arrays] for side in sides]
        return cls(
            counts,
            [mean for mean, _, _, _ in parts],
            [1 / precision for _, precision, _, _ in parts],
            [bias for _, _, bias, _ in parts],
            [1 / precision for _, _, _, precision in parts],
            [side.shares.copy() for side in sides],
            [side.concentration.copy() for side in sides],
            [side.precisions for side in sides],
            posterior.censored,
            posterior.alpha,
            posterior.xi_star,
        )

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """E a and E a^2 of all pairs."""
        (u, v), (s, t) = self.means, self.variances
        mean = u @ v.T + self.biases[0][:, None] + self.biases[1]
        variance = (s + u**2) @ t.T + s @ (v**2).T + self.bias_variances[0][:, None] + self.bias_variances[1]
        return mean, mean**2 + variance

    def xi(self) -> np.ndarray:
        return np.where(self.counts > 0, np.sqrt(self.moments()[1]), self.xi_star)

    def censored_counts(self) -> np.ndarray:
        return self.censored * np.outer(*self.shares)

    def bound(self, xi: np.ndarray) -> float:
        mean, square = self.moments()
        base = log_expit(xi) - xi / 2 + bound_gradient(xi) * (xi**2 - square)
        censored = self.censored_counts()
        total = (self.counts * (base + mean / 2) + censored * (base - mean / 2)).sum()
        total -= xlogy(censored, censored / self.censored).sum()
        for side in (0, 1):
            total += self._dirichlet(side)
            means, variances = (self.means, self.biases), (self.variances, self.bias_variances)
            for mean, variance, tau in zip(means, variances, self.precisions[side]):
                mean, variance = mean[side], variance[side]
                total += 0.5 * (np.log(tau) - tau * (mean**2 + variance) + np.log(variance) + 1).sum()
        return total

    def _dirichlet(self, side: int) -> float:
        posterior, events = self.concentrations[side], self.counts.sum(axis=1 - side)
        logs = digamma(posterior) - digamma(posterior.sum())
        prior = gammaln(len(logs) * self.alpha) - len(logs) * gammaln(self.alpha)
        prior += (self.alpha - 1) * logs.sum()
        own = gammaln(posterior.sum()) - gammaln(posterior).sum() + ((posterior - 1) * logs).sum()
        return ((events + self.censored_counts().sum(axis=1 - side)) * logs).sum() + prior - own

    def update_factors(self, side: int) -> None:
        """Eq. 6 to 8 with the bias as one more coordinate: sums over every item (user), seen or not."""
        xi, counts, censored = self.xi(), self.counts, self.censored_counts()
        if side == 1:
            xi, counts, censored = xi.T, counts.T, censored.T
        other, k = 1 - side, self.means[0].shape[1]
        x = np.hstack([self.means[other], np.ones((len(self.means[other]), 1))])
        for i in range(len(counts)):
            weight = 2 * bound_gradient(xi[i]) * (counts[i] + censored[i])
            precision = np.diag([self.precisions[side][0]] * k + [self.precisions[side][1]])
            precision += (x.T * weight) @ x + np.diag(np.append(weight @ self.variances[other], 0))
            pull = ((counts[i] - censored[i]) / 2 - weight * self.biases[other]) @ x
            solution = np.linalg.solve(precision, pull)
            self.means[side][i], self.biases[side][i] = solution[:k], solution[k]
            variances = 1 / np.diag(precision)
            self.variances[side][i], self.bias_variances[side][i] = variances[:k], variances[k]

    def update_shares(self, side: int) -> None:
        xi, (mean, square) = self.xi(), self.moments()
        gain = log_expit(xi) - xi / 2 + bound_gradient(xi) * (xi**2 - square) - mean / 2
        gain = gain @ self.shares[1] if side == 0 else gain.T @ self.shares[0]
        posterior = self.concentrations[side]
        logs = digamma(posterior) - digamma(posterior.sum()) + gain
        self.shares[side] = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()

    def update_concentration(self, side: int) -> None:
        self.concentrations[side] = self.alpha + (self.counts + self.censored_counts()).sum(axis=1 - side)

    def update_xi(self) -> None:
        weight = self.censored_counts() * (self.counts == 0)
        self.xi_star = np.sqrt((weight * self.moments()[1]).sum() / weight.sum())


def bound_gradient(xi: np.ndarray) -> np.ndarray:
    return np.tanh(xi / 2) / (4 * xi)


UPDATES = {  # block: the model's step, and the dense one
    "users": (lambda q: q.update_factors(q.users, q.items), lambda dense: dense.update_factors(0)),
    "s": (lambda q: q.update_shares(q.users, q.items), lambda dense: dense.update_shares(0)),
    "pi": (lambda q: q.users.update_concentration(q.alpha, q.censored), lambda dense: dense.update_concentration(0)),
    "items": (lambda q: q.update_factors(q.items, q.users), lambda dense: dense.update_factors(1)),
    "t": (lambda q: q.update_shares(q.items, q.users), lambda dense: dense.update_shares(1)),
    "psi": (lambda q: q.items.update_concentration(q.alpha, q.censored), lambda dense: dense.update_concentration(1)),
    "xi": (lambda q: q.update_xi(), lambda dense: dense.update_xi()),
}


def apply_step(posterior: PairedSymbolsPosterior, block: str) -> None:
    UPDATES[block][0](posterior)


def small_counts(users: int = 30, items: int = 20, share: float = 0.3, seed: int = 1) -> np.ndarray:
    """Counts of 1 to 3 with a user who has everything and an item that everybody has."""
    rng = np.random.default_rng(seed)
    counts = (rng.random((users, items)) < share) * rng.integers(1, 4, (users, items))
    counts[0], counts[:, 0] = 1, 2
    return counts.astype(np.float64)


def posterior_of(
    counts: np.ndarray, passes: int = 2, blocks: tuple[str, ...] = tuple(UPDATES), **settings: float
) -> PairedSymbolsPosterior:
    """The posterior after some passes, so that nothing is near where it began."""
    model = PairedSymbols(PairedSymbolsSettings(**{"r": 1.5, "tau_u": 0.8} | settings))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oneclass.models.paired_symbols.model.TAU_B", 1.3)
        posterior = model._initial_posterior(csr_matrix(counts))
    for _ in range(passes):
        for block in blocks:
            apply_step(posterior, block)
    return posterior


def assert_same(posterior: PairedSymbolsPosterior, dense: Dense, counts: np.ndarray, tolerance: float = 2e-5) -> None:
    got = Dense.of(posterior, counts)
    for name in ("means", "variances", "biases", "bias_variances", "shares", "concentrations"):
        for ours, theirs in zip(getattr(got, name), getattr(dense, name)):
            assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance * np.abs(theirs).max(), err_msg=name)
    assert_allclose(got.xi_star, dense.xi_star, rtol=tolerance)


@pytest.mark.parametrize(
    ("block", "factors"),
    [(block, 20) for block in UPDATES]
    + [pytest.param("users", factors, marks=pytest.mark.slow) for factors in (4, 11, 31)],
)
def test_a_block_update_is_the_dense_one(block: str, factors: int) -> None:
    counts = small_counts()
    posterior = posterior_of(counts, factors=factors)
    dense = Dense.of(posterior, counts)
    apply_step(posterior, block)
    UPDATES[block][1](dense)
    assert_same(posterior, dense, counts)


def test_updates_hold_for_thousands_of_edges() -> None:
    counts, blocks = small_counts(3, 2500), ("users", "items")
    posterior = posterior_of(counts, 1, blocks)
    for block in blocks:
        dense = Dense.of(posterior, counts)
        apply_step(posterior, block)
        UPDATES[block][1](dense)
        assert_same(posterior, dense, counts, 1e-4)


@pytest.mark.parametrize("learn", [True, False])
def test_no_block_lowers_the_bound_which_is_the_dense_one(learn: bool) -> None:
    counts = small_counts()
    posterior = posterior_of(counts, passes=0)
    bound = posterior.bound()
    began = bound
    for _ in range(25):
        for block in UPDATES if learn else ("users", "items", "xi"):
            apply_step(posterior, block)
            new = posterior.bound()
            assert new > bound - 2e-7 * abs(bound), block
            bound = new
        dense = Dense.of(posterior, counts)
        assert_allclose(bound, dense.bound(dense.xi()), rtol=1e-7)
    assert bound > began + 50


def test_a_folded_in_user_is_at_the_optimum_whatever_the_block() -> None:
    counts = small_counts()
    model = PairedSymbols(PairedSymbolsSettings()).fit(csr_matrix(counts))
    new = csr_matrix(small_counts(seed=2))
    together = model.fold_in(new)
    for alone, all_at_once in zip(model.fold_in(new[7:8]).arrays, together.arrays, strict=True):
        assert_array_equal(alone, all_at_once[7:8])
    users = Symbols(new, together.rows(slice(None)), (1.0, 1.0))
    users.update(model._item_symbols(), users.degrees, float(model.xi_star[0]))
    assert_allclose(users.q.mean, together.mean, atol=2e-3)
    again = model.scores(csr_matrix(counts))
    assert_allclose(again, model.scores(csr_matrix(counts), users=np.arange(30)), atol=0.02)


def test_like_is_stated_against_other_numbers_of_censored_pairs_by_bayes_rule() -> None:
    counts = (np.random.default_rng(8).random((40, 25)) < 0.2).astype(np.float32)
    as_fitted, restated = (
        PairedSymbols(PairedSymbolsSettings(r=4.0, like_r=like_r), seed=2).fit(csr_matrix(counts))
        for like_r in (None, 1.0)
    )
    assert np.array_equal(as_fitted.items.mean, restated.items.mean)
    sides = as_fitted._user_side(csr_matrix(counts), np.arange(40)), item_columns(as_fitted.items)
    mean, variance = logit_moments(*sides)
    a = mean[..., None] + np.sqrt(variance)[..., None] * np.random.default_rng(3).standard_normal(4000)
    like = 1 / (1 + np.exp(-a))
    against_one = 4 * like / (4 * like + 1 - like)  # a fourth of the censored pairs: the odds are four times as high
    found, sd = restated.like(csr_matrix(counts), users=np.arange(40))
    np.testing.assert_allclose(found, against_one.mean(axis=-1), atol=0.01)
    np.testing.assert_allclose(sd, against_one.std(axis=-1), atol=0.01)
    pairs = np.tile([3, 1, -1], (40, 1))
    np.testing.assert_allclose(
        restated.like(csr_matrix(counts), users=np.arange(40), items=pairs)[0][:, :2], found[:, [3, 1]], rtol=1e-5
    )
    assert restated.negative_distribution().r == 1.0 and as_fitted.negative_distribution().r == 4.0
