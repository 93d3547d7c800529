"""Weighted matrix factorization by blocks of users: the sums against float64 numpy, and the fit against one machine's."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix, vstack

from models.fitting import FitOptions
from models.numerics.degree_weights import degree_weights_or_ones
from models.numerics.products import read_only
from models.numerics.threads import kernel_threads
from models.user_blocks import cut_into_blocks
from models.wmf import blocks, worker
from models.wmf.model import WMF, WMFSettings
from models.wmf.sides import Loss, Solver, first_table, rows, table_of, weighted_gram
from models.wmf.sums import conjugate_gradients, numbers, solve_equations
from tests.models.block_fits import (
    Scales,
    assert_bits_of_blocks_alone,
    assert_close,
    assert_killed_process_changes_no_bit,
    assert_same_bits,
    assert_scores_serve_inside,
    counted,
    held_out,
    metrics,
    planted,
    shelved,
)

pytestmark = pytest.mark.slow  # kernels that only blocks of users need are compiled

SHORT = {"factors": 21, "iterations": 8, "tolerance": 0}
RENDLE, HU = Loss(0.1, 0.0, 0.0, 0.005, 0.8), Loss(1.0, 1.0, 3.0, 4.0, 0.0)
losses = pytest.mark.parametrize("loss", [RENDLE, HU], ids=["rendle2021", "hu2008"])
factor_counts = pytest.mark.parametrize("factors", [1, 16, 21])


def fitted(matrix, *, threads=1, options=None, **settings):
    return WMF(WMFSettings(**{**SHORT, **settings}), seed=3, threads=threads).fit(matrix, options or FitOptions())


class Case:
    """One block of 60 users whose factors are solved, and the same in dense float64."""

    def __init__(self, matrix, loss, factors, steps, folder):
        rng = np.random.default_rng(factors)
        self.matrix, self.loss = counted(matrix)[:60], loss
        self.weights = rng.uniform(0.5, 2.0, 60)
        self.items = rng.normal(0, 0.5, (120, factors)).astype(np.float32)
        terms = worker.Terms(factors, loss, Solver(steps, 0 if steps else 1 << 16), 1)
        with cut_into_blocks(self.matrix, 1, terms, FitOptions(scratch=folder), "wmf") as (block,):
            begins = np.zeros((60, factors), dtype=np.float32)
            block.write(0, {"factors": begins, "weights": self.weights})
            gram = weighted_gram(table_of(self.items), factors, None, loss.unobserved)
            self.of_items, self.constant = worker.weigh(block, 0, 120)
            self.answer = worker.solve_users(block, 0, self.items, gram)
            self.directions = rng.normal(size=self.items.shape).astype(np.float32)
            self.product = worker.multiply(block, 1, self.directions) if steps else None
            self.users = block.read(1)["factors"].astype(float)
        liked = self.matrix.toarray() > 0
        self.a = self.weights[:, None] * liked * (loss.alpha * self.matrix.toarray() if loss.alpha else 1.0)
        self.y = self.a + self.weights[:, None] * liked * loss.base

    def equations(self):
        """sum_e a_e u u' and sum_e y_e u of every item."""
        return np.einsum("ui,uk,ul->ikl", self.a, self.users, self.users), self.y.T @ self.users


def assert_near(found, right, share=1e-5):
    np.testing.assert_allclose(found, right, rtol=0, atol=share * max(np.abs(right).max(), 1e-30))


@losses
@factor_counts
def test_a_message_is_the_blocks_part_of_the_normal_equations(loss, factors, long_tailed, tmp_path):
    case = Case(long_tailed, loss, factors, 0, tmp_path)
    A, y = case.equations()
    assert case.answer.sums.dtype == np.float32 and case.answer.sums.shape == (120, numbers(factors))
    below = np.tril_indices(factors)
    assert_near(case.answer.sums, np.column_stack([A[:, below[0], below[1]], y]))
    assert not case.answer.sums[11].any()


@losses
@factor_counts
def test_messages_of_conjugate_gradients_are_products_of_the_same_sums(loss, factors, long_tailed, tmp_path):
    case = Case(long_tailed, loss, factors, 3, tmp_path)
    (A, y), x = case.equations(), case.items.astype(float)
    assert_near(case.answer.sums, y - np.einsum("ikl,il->ik", A, x))
    assert_near(case.product, -np.einsum("ikl,il->ik", A, case.directions))
    value = np.einsum("ik,ikl,il->", x, A, x) - 2 * (y * x).sum()
    assert case.answer.value == pytest.approx(value, rel=1e-5)


@losses
def test_weights_constant_gram_and_penalty_are_the_blocks_parts_of_the_loss(loss, long_tailed, tmp_path):
    case = Case(long_tailed, loss, 21, 3, tmp_path)
    degrees = np.diff(case.matrix.indptr)
    np.testing.assert_allclose(case.of_items, case.weights @ (case.matrix.toarray() > 0), rtol=1e-12)
    assert case.constant == pytest.approx(case.y.sum(), rel=1e-6)
    assert_near(case.answer.gram, loss.unobserved * (case.users.T * case.weights) @ case.users)
    ridges = loss.regularization * (degrees + loss.unobserved * 120) ** loss.exponent
    assert case.answer.penalty == pytest.approx((case.weights * ridges) @ (case.users**2).sum(axis=1), rel=1e-5)


def equations(factors, seed=0):
    """A, y, Gram matrix, ridges and old factors of 30 items; item 4 has no edge."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(30, 50, factors))
    u[4] = 0
    gram = rng.normal(size=(2 * factors, factors)) / np.sqrt(factors)
    x = rng.normal(size=(30, factors)).astype(np.float32)
    x[4] = 0
    gram, ridges = (gram.T @ gram).astype(np.float32), rng.uniform(0.5, 2, 30).astype(np.float32)
    return np.einsum("nek,nel->nkl", u, u), u.sum(axis=1), gram, ridges, x


def whole(A, gram, ridges):
    return A + gram + ridges[:, None, None] * np.eye(len(gram))


def objective(A, y, x):
    return np.einsum("nk,nkl,nl->n", x, A, x) - 2 * (y * x).sum(axis=1)


@factor_counts
@pytest.mark.parametrize("block", [16, 64])
def test_items_are_solved_one_block_of_factors_after_another(factors, block):
    A, y, gram, ridges, x = equations(factors)
    full, right = whole(A, gram, ridges), x.astype(float)
    for start in range(0, factors, block):
        part = slice(start, start + block)
        error = np.einsum("nkl,nl->nk", full, right) - y
        right[:, part] -= np.linalg.solve(full[:, part, part], error[:, part, None])[..., 0]
    below, values = np.tril_indices(factors), np.zeros(30)
    total = np.column_stack([A[:, below[0], below[1]], y])
    with kernel_threads(1):
        solve_equations(x, total, gram, read_only(ridges, np.float32), np.array([0, 13, 30]), block, values)
    assert_near(x, right)
    assert_near(values, objective(full, y, right))
    assert not x[4].any()


def test_steps_of_conjugate_gradients_are_those_of_the_textbook():
    A, y, gram, ridges, x = equations(21)
    full, right = whole(A, gram, ridges), x.astype(float)
    for item in range(30):
        residual = y[item] - full[item] @ right[item]
        direction = residual
        for _ in range(3 if residual.any() else 0):
            step = residual @ residual / (direction @ full[item] @ direction)
            right[item] += step * direction
            before, residual = residual @ residual, residual - step * full[item] @ direction
            direction = residual + residual @ residual / before * direction
    edges = y - np.einsum("nkl,nl->nk", A, x)
    found, value = conjugate_gradients(x, edges, gram, ridges, lambda d: np.einsum("nkl,nl->nk", A, d), 3)
    assert_near(found, right)
    old = (objective(A, y, x.astype(float))).sum()
    assert value + old == pytest.approx(objective(full, y, right).sum(), rel=1e-6)


MODES = [
    {},
    {"solver": "cholesky"},
    {"solver": "blocks", "block": 16},
    {"loss": "hu2008", "user_weight_exponent": 0.0},
    {"loss": "hu2008", "solver": "cholesky"},
    {"regularization_exponent": 0.5, "user_weight_exponent": 1.0, "cg_steps": 2},
]
modes = pytest.mark.parametrize("mode", MODES, ids=[" ".join(map(str, mode.values())) or "defaults" for mode in MODES])


@modes
@pytest.mark.parametrize("count", [3, 4, 7])
def test_blocks_make_the_fit_of_one_machine(long_tailed, mode, count):
    matrix, seen = counted(long_tailed), {1: [], count: []}
    one, many = (fitted(matrix, blocks=of, options=FitOptions(on_epoch=seen[of].append), **mode) for of in (1, count))
    assert_close(one, many, 1e-5)
    for before, after in zip(seen[1], seen[count], strict=True):
        assert before.values == pytest.approx(after.values, rel=1e-6)


@modes
def test_one_block_through_messages_makes_the_fit_of_one_machine_too(long_tailed, mode):
    matrix, model = counted(long_tailed), WMF(WMFSettings(**{**SHORT, **mode}), seed=3)
    one = model.fit(matrix)
    users, items = (
        rows(first_table(count, 21, 0.1, 3, f"wmf {side}"), 21).copy()
        for count, side in ((300, "users"), (120, "items"))
    )
    terms = worker.Terms(21, one._loss(), one._solver(), 1)
    weights = degree_weights_or_ones(np.diff(matrix.indptr), one.settings.user_weight_exponent)
    with kernel_threads(1), blocks.begun(terms, users, items, weights, matrix, 1, FitOptions()) as fit:
        for _ in range(8):
            fit.iterate()
        assert len(fit.blocks) == 1
        assert_near(fit.items, one.item_factors)
        assert_near(fit.blocks.gathered()["factors"], one.user_factors)


@pytest.mark.parametrize("solver", ["cg", "cholesky"])
def test_metrics_of_both_fits_agree_to_four_digits_and_so_does_where_they_stop(solver):
    train, targets = held_out(planted(600))
    lengths, found = [], []
    for count in (1, 4):
        epochs = []
        options = FitOptions(on_epoch=epochs.append)
        model = fitted(train, blocks=count, iterations=40, tolerance=0.003, solver=solver, options=options)
        lengths.append(len(epochs))
        found.append(metrics(model, train, targets))
    assert lengths[0] == lengths[1] < 40
    for name in ("mean_rank", "ndcg@100"):
        assert found[0][name].value == pytest.approx(found[1][name].value, abs=5e-5), name


@modes
def test_the_bits_depend_on_the_number_of_blocks_alone(long_tailed, mode):
    assert_bits_of_blocks_alone(fitted, long_tailed, blocks=5, **mode)


def test_processes_give_the_same_bits_and_one_that_is_killed_changes_none(long_tailed, tmp_path):
    assert_killed_process_changes_no_bit(fitted, long_tailed, tmp_path / "seen by all", blocks=5)


@pytest.mark.parametrize("copies", [1, 6])
@pytest.mark.parametrize(("solver", "given"), [("cg", 21), ("cholesky", numbers(21))])
def test_items_alone_travel_however_many_users_there_are(long_tailed, tmp_path, copies, solver, given):
    matrix, scales = csr_matrix(vstack([long_tailed] * copies)), Scales()
    options = FitOptions(workers=scales, rows=shelved(matrix, tmp_path))
    model = fitted(matrix, blocks=3, iterations=3, solver=solver, options=options)
    assert len(scales.taken) == 3 * (1 + 3 * (4 if solver == "cg" else 1))
    assert max(scales.taken) <= 120 * 4 * 21 + 4 * 32**2 + 1500
    assert max(scales.given) <= 120 * 4 * given + 4 * 21**2 + 1500
    assert_same_bits(model, fitted(matrix, blocks=3, iterations=3, solver=solver))


@pytest.mark.parametrize("likes", [np.ones((6, 5)), np.eye(1), np.eye(4)[:3], np.ones((4, 1))])
@pytest.mark.parametrize("solver", ["cg", "cholesky", "blocks"])
def test_awkward_data_get_finite_scores(likes, solver):
    matrix = csr_matrix(likes.astype(np.float32))
    model = fitted(matrix, blocks=9, solver=solver)
    assert np.isfinite(model.scores(matrix, users=np.arange(len(likes)))).all()


def test_equations_that_float32_cannot_solve_are_refused():
    with pytest.raises(ValueError, match="raise regularization"):
        fitted(csr_matrix(np.ones((2, 1), np.float32)), blocks=2, factors=64, regularization=1e-60, solver="cholesky")


def test_scores_serve_inside_a_fit_by_blocks(long_tailed):
    assert_scores_serve_inside(WMF(WMFSettings(**{**SHORT, "blocks": 3})), long_tailed)
