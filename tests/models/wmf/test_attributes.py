"""Attributes in weighted matrix factorization: its loss, written out in float64, and each of its blocks."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.attributes.new_items import fold_in_items, score_new_items
from oneclass.models.attributes.prior_means import NEW_ROWS
from oneclass.models.fit_options import FitOptions
from oneclass.models.numerics.threads import kernel_threads
from oneclass.models.wmf.model import EXACT, WMF, WMFSettings

SOLVERS = {"cholesky": EXACT, "cg": 3}
solvers = pytest.mark.parametrize("solver", SOLVERS)


@pytest.fixture(scope="module")
def counts(long_tailed):
    """Counts 1 to 4, a user and an item without an edge."""
    counts = long_tailed[:90].toarray() * np.random.default_rng(1).integers(1, 5, (90, 120))
    counts[7], counts[:, 11] = 0, 0
    return csr_matrix(counts.astype(np.float32))


def draw_features(rows, seed, columns=5):
    rng = np.random.default_rng(seed)
    return csr_matrix((rng.normal(size=(rows, columns)) * (rng.random((rows, columns)) < 0.6)).astype(np.float32))


OPTIONS = FitOptions(item_features=draw_features(120, 2), user_features=draw_features(90, 3))


def wmf_settings(**more):
    return WMFSettings(**{"factors": 21, "regularization": 0.02, "attribute_regularization": 3.0} | more)


class Problem:
    """The sides of a fit in its first pass, and the loss in the docstring of `models.wmf.model`."""

    def __init__(self, counts, options=OPTIONS, **more):
        self.counts, self.options, self.model = counts, options, WMF(wmf_settings(**more))
        self.model.params = self.model.settings.resolve(counts)
        self.model.item_degrees = counts.getnnz(axis=0)
        self.users, self.items, self.constant = self.model._initialize(counts, options)
        degrees, exponent = counts.getnnz(axis=1), self.model.params.user_weight_exponent
        weights = np.where(degrees > 0, np.maximum(degrees, 1.0) ** -exponent, 0)
        self.weights = weights / weights[degrees > 0].mean() if exponent else np.ones(90)
        self.weights[degrees == 0] = self.users.systems.own[degrees == 0]  # any weight: the user is in no term

    def penalties(self):
        chosen, liked = self.model.params, self.counts.toarray() > 0
        if chosen.loss == "hu2008":
            return self.weights * chosen.regularization, np.full(120, chosen.regularization)
        of_users = self.weights * chosen.regularization * (liked.sum(axis=1) + chosen.unobserved_weight * 120)
        of_items = (self.weights[:, None] * liked).sum(axis=0) + chosen.unobserved_weight * self.weights.sum()
        return of_users, chosen.regularization * of_items

    def total(self):
        chosen, counts = self.model.params, self.counts.toarray().astype(float)
        liked = counts > 0
        products = self.users.vectors.astype(float) @ self.items.vectors.T.astype(float)
        if chosen.loss == "hu2008":
            terms = (1 + chosen.alpha * counts) * (liked - products) ** 2
        else:
            terms = liked * (products - 1) ** 2 + chosen.unobserved_weight * products**2
        total = (self.weights[:, None] * terms).sum()
        sides = zip(
            (self.users, self.items),
            self.penalties(),
            (liked.any(axis=1), liked.any(axis=0)),
            (self.options.user_features, self.options.item_features),
            strict=True,
        )
        for side, penalties, used, given in sides:
            means = 0 if given is None else given.toarray().astype(float) @ side.prior.coefficients
            total += (penalties * used) @ ((side.vectors.astype(float) - means) ** 2).sum(axis=1)
            if given is not None:
                total += chosen.attribute_regularization * penalties[used].mean() * (side.prior.coefficients**2).sum()
        return total


def run_block_by_block(given, solver, passes):
    """Run passes block by block, yielding after each: a map, the users, a map, the items."""
    for _ in range(passes):
        for side, other in ((given.users, given.items), (given.items, given.users)):
            if side.prior is not None:
                side.prior.fit(side.vectors)
                yield
            means = None if side.prior is None else side.prior.means
            with kernel_threads(1):
                side.systems.solve(side.table, other.table, side.factors, solver, means=means)
            yield


@solvers
@pytest.mark.parametrize("loss", ["rendle2021", "hu2008"])
def test_no_block_of_a_pass_raises_the_loss(loss, solver, counts):
    given = Problem(counts, loss=loss, regularization=0.02 if loss == "rendle2021" else 2.0)
    list(run_block_by_block(given, SOLVERS[solver], 1))  # drops the random factors of the rows without an edge
    before = first = given.total()
    for _ in run_block_by_block(given, SOLVERS[solver], 6):
        now = given.total()
        assert now <= before * (1 + 1e-6)
        before = now
    assert before < 0.995 * first


@solvers
@pytest.mark.parametrize("options", [OPTIONS, FitOptions(item_features=OPTIONS.item_features)], ids=["both", "items"])
def test_the_reported_loss_is_the_loss(options, solver, counts):
    given = Problem(counts, options)
    with kernel_threads(1):
        given.users.update(given.items, SOLVERS[solver])
        value = given.items.update(given.users, SOLVERS[solver]) + given.constant + given.users.penalty()
    assert value == pytest.approx(given.total(), rel=1e-5)


def test_each_row_is_the_solution_of_its_normal_equations(counts):
    given = Problem(counts, user_weight_exponent=0.5)
    list(run_block_by_block(given, EXACT, 2))
    v, chosen, liked = given.items.vectors.astype(float), given.model.params, counts.toarray() > 0
    u, means = given.users.vectors.astype(float), OPTIONS.user_features.toarray() @ given.users.prior.coefficients
    given.users.prior.fit(given.users.vectors)
    with kernel_threads(1):
        given.users.systems.solve(given.users.table, given.items.table, 21, EXACT, means=given.users.prior.means)
    means = OPTIONS.user_features.toarray() @ given.users.prior.coefficients
    ridges = chosen.regularization * (liked.sum(axis=1) + chosen.unobserved_weight * 120)
    for user in np.flatnonzero(liked.any(axis=1)):
        mine = v[liked[user]]
        matrix = chosen.unobserved_weight * v.T @ v + mine.T @ mine + ridges[user] * np.eye(21)
        expected = np.linalg.solve(matrix, mine.sum(axis=0) + ridges[user] * means[user])
        np.testing.assert_allclose(given.users.vectors[user], expected, atol=2e-4 * np.abs(u).max())
    assert not given.users.vectors[7].any()


@solvers
def test_every_solver_reaches_the_same_loss(solver, counts):
    def last(**more):
        losses = []
        options = FitOptions(
            item_features=OPTIONS.item_features,
            user_features=OPTIONS.user_features,
            on_epoch=lambda epoch: losses.append(epoch.values["loss"]),
        )
        WMF(wmf_settings(iterations=60, tolerance=0, **more)).fit(counts, options)
        return losses[-1]

    assert last(solver=solver) == pytest.approx(last(solver="cholesky"), rel=2e-3)


def test_rows_without_an_edge_have_their_prior_means(counts):
    model = WMF(wmf_settings(iterations=4)).fit(counts, OPTIONS)
    has_edges = counts.getnnz(axis=0) > 0
    known, penalty = OPTIONS.item_features.toarray()[has_edges], np.sqrt(NEW_ROWS) * np.eye(5)
    rows, vectors = np.vstack([known, penalty]), np.vstack([model.item_factors[has_edges], np.zeros((5, 21))])
    np.testing.assert_allclose(model.item_map, np.linalg.lstsq(rows, vectors, rcond=None)[0], atol=1e-5)
    of_item = OPTIONS.item_features[[11]] @ model.item_map
    np.testing.assert_allclose(model.item_factors[[11]], of_item, atol=1e-6)
    np.testing.assert_allclose(model.user_factors[[7]], OPTIONS.user_features[[7]] @ model.user_map, atol=1e-6)
    new = fold_in_items(model, OPTIONS.item_features[[11]])
    of_new = score_new_items(model, counts[:5], new, users=np.arange(5))
    np.testing.assert_allclose(of_new, model.scores(counts[:5], users=np.arange(5))[:, [11]], atol=1e-5)


def test_folding_in_knows_the_attributes_of_users_that_are_given(counts):
    model = WMF(wmf_settings(iterations=3)).fit(counts, OPTIONS)
    v, chosen = model.item_factors.astype(float), model.params
    liked = counts.toarray() > 0
    v[11] = model.item_factors[11]
    means = OPTIONS.user_features.toarray() @ model.user_map
    for given, expected_means in ((OPTIONS.user_features[:9], means[:9]), (None, np.zeros((9, 21)))):
        found = model.fold_in(counts[:9], given)
        for user in range(9):
            mine, ridge = v[liked[user]], chosen.regularization * (liked[user].sum() + chosen.unobserved_weight * 120)
            matrix = chosen.unobserved_weight * v.T @ v + mine.T @ mine + ridge * np.eye(21)
            expected = np.linalg.solve(matrix, mine.sum(axis=0) + ridge * expected_means[user])
            expected = expected_means[user] if not len(mine) else expected
            np.testing.assert_allclose(found[user], expected, atol=2e-4)


def test_a_fit_without_attributes_says_so(counts):
    model = WMF(wmf_settings(iterations=1)).fit(counts)
    with pytest.raises(ValueError, match=r"without attributes of items; give FitOptions\(item_features"):
        fold_in_items(model, OPTIONS.item_features)
    with pytest.raises(ValueError, match=r"without attributes of users; give FitOptions.user_features"):
        model.fold_in(counts[:2], OPTIONS.user_features[:2])


def test_a_large_regularization_leaves_known_rows_as_without_attributes(counts):
    one, two = (
        WMF(wmf_settings(iterations=3, attribute_regularization=1e9)).fit(counts, options)
        for options in (OPTIONS, FitOptions())
    )
    known = counts.getnnz(axis=0) > 0
    np.testing.assert_allclose(one.item_factors[known], two.item_factors[known], atol=1e-4)
