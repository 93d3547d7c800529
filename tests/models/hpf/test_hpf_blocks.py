"""Hierarchical Poisson factorization by blocks of users: the sums against float64 numpy, and the fit against one machine's."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix, vstack
from scipy.special import digamma, gammaln

from models.fitting import FitOptions
from models.hpf import blocks, worker
from models.hpf.model import HPF, HPFSettings
from models.numerics.threads import kernel_threads
from models.user_blocks import cut_into_blocks
from tests.models.block_fits import (
    Scales,
    assert_begins_at_an_earlier_fit,
    assert_bits_of_blocks_alone,
    assert_close,
    assert_same_bits,
    assert_scores_serve_inside,
    counted,
    held_out,
    metrics,
    planted,
    shelved,
)

SHORT = {"factors": 5, "max_iterations": 14, "tolerance": 0}


def fitted(matrix, *, threads=1, options=None, **settings):
    return HPF(HPFSettings(**{**SHORT, **settings}), seed=3, threads=threads).fit(matrix, options or FitOptions())


@pytest.mark.parametrize("ones", [False, True], ids=["counts", "ones"])
@pytest.mark.parametrize("factors", [1, 5, 8])
def test_an_answer_is_the_blocks_sums_and_its_terms_of_the_bound(long_tailed, tmp_path, ones, factors):
    matrix, settings = counted(long_tailed), HPFSettings(factors=factors, a=0.4, a_prime=0.7, b_prime=2.0)
    users, items = HPF(settings, seed=3)._beginning(matrix.shape, None)
    terms = worker.Terms(ones, settings.user_prior, 1)
    with cut_into_blocks(matrix, 3, terms, FitOptions(scratch=tmp_path), "hpf") as parts:
        parts.begin(users.posterior._asdict())
        block = parts[1]
        answer = worker.update(block, 0, items.factors[:, :factors].copy(), items.total)
        old, new = (block.read(state) for state in (0, 1))
    y = matrix[block.first : block.end].toarray().astype(float)
    y = (y > 0).astype(float) if ones else y
    shape, rate, activity = (old[name].astype(float) for name in ("shape", "rate", "activity_rate"))
    t, b = np.exp(digamma(shape)) / rate, items.factors[:, :factors].astype(float)
    s = t @ b.T
    assert answer.sums.dtype == np.float32 and answer.sums.shape == (120, factors)
    np.testing.assert_allclose(answer.sums, (y / s).T @ t, rtol=1e-5, atol=1e-5)
    assert not answer.sums[11].any()
    assert answer.log == pytest.approx((y * np.log(s)).sum() - gammaln(y + 1).sum(), rel=1e-6)
    np.testing.assert_allclose(answer.before, (shape / rate).sum(axis=0), rtol=1e-6)
    right = settings.a + t * ((y / s) @ b)
    right_rate = ((0.7 + factors * 0.4) / activity)[:, None] + items.total
    np.testing.assert_allclose(new["shape"], right, rtol=2e-5)
    np.testing.assert_allclose(new["rate"], right_rate, rtol=2e-5)
    np.testing.assert_allclose(new["activity_rate"], 0.7 / 2.0 + (right / right_rate).sum(axis=1), rtol=2e-5)
    np.testing.assert_allclose(answer.after, (right / right_rate).sum(axis=0), rtol=2e-5)


def test_a_block_begins_as_one_machine_does(long_tailed):
    users, items = HPF(HPFSettings(**SHORT), seed=3)._beginning(long_tailed.shape, None)
    terms = worker.Terms(True, users.prior, 1)
    with blocks.begun(terms, users, items, long_tailed, 4, FitOptions()) as ascent:
        for name, array in ascent.blocks.gathered().items():
            np.testing.assert_array_equal(array, getattr(users.posterior, name))


MODES = [{}, {"binarize_counts": False}, {"factors": 16, "a": 0.1, "c": 1.0, "a_prime": 5.0, "d_prime": 0.5}]
modes = pytest.mark.parametrize("mode", MODES, ids=["ones", "counts", "other priors"])


@modes
@pytest.mark.parametrize("count", [3, 4, 7])
def test_blocks_make_the_fit_of_one_machine(long_tailed, mode, count):
    matrix, seen = counted(long_tailed), {1: [], count: []}
    one, many = (fitted(matrix, blocks=of, options=FitOptions(on_epoch=seen[of].append), **mode) for of in (1, count))
    assert_close(one, many, 1e-5)
    for before, after in zip(seen[1], seen[count], strict=True):
        assert before.values == pytest.approx(after.values, rel=1e-6)


def test_one_block_through_messages_makes_the_fit_of_one_machine_too(long_tailed):
    one = fitted(long_tailed)
    users, items = HPF(one.settings, seed=3)._beginning(long_tailed.shape, None)
    terms = worker.Terms(True, users.prior, 1)
    with kernel_threads(1), blocks.begun(terms, users, items, long_tailed, 1, FitOptions()) as ascent:
        bounds = [ascent.iterate() for _ in range(14)]
        found = ascent.blocks.gathered()
    np.testing.assert_allclose(bounds, one.bounds, rtol=1e-6)
    for name, array in one.user_posterior._asdict().items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=1e-5 * array.max(), err_msg=name)


def test_metrics_of_both_fits_agree_to_four_digits_and_so_does_where_they_stop():
    train, targets = held_out(planted(600))
    lengths, found = [], []
    for count in (1, 4):
        model = fitted(train, blocks=count, max_iterations=200, tolerance=1e-4)
        lengths.append(len(model.bounds))
        found.append(metrics(model, train, targets))
    assert lengths[0] == lengths[1] < 200
    for name in ("mean_rank", "ndcg@100"):
        assert found[0][name].value == pytest.approx(found[1][name].value, abs=5e-5), name


def test_a_fit_by_blocks_begins_at_an_earlier_fit(long_tailed):
    assert_begins_at_an_earlier_fit(fitted, long_tailed, 1e-5, max_iterations=4)


@modes
def test_the_bits_depend_on_the_number_of_blocks_alone(long_tailed, mode):
    assert_bits_of_blocks_alone(fitted, counted(long_tailed), blocks=5, **mode)


@pytest.mark.parametrize("copies", [1, 6])
def test_items_alone_travel_however_many_users_there_are(long_tailed, tmp_path, copies):
    matrix, scales = csr_matrix(vstack([long_tailed] * copies)), Scales()
    options = FitOptions(workers=scales, rows=shelved(matrix, tmp_path))
    model = fitted(matrix, blocks=3, max_iterations=3, options=options)
    assert len(scales.taken) == 9
    assert max(scales.taken) <= 120 * 4 * 5 + 8 * 5 + 1500
    assert max(scales.given) <= 120 * 4 * 5 + 2 * 8 * 5 + 1500
    assert_same_bits(model, fitted(matrix, blocks=3, max_iterations=3))


@pytest.mark.parametrize("likes", [np.ones((6, 5)), np.eye(1), np.eye(4)[:3], np.ones((4, 1))])
def test_awkward_data_get_finite_scores(likes):
    matrix = csr_matrix(likes.astype(np.float32))
    model = fitted(matrix, blocks=9)
    assert np.isfinite(model.scores(matrix, users=np.arange(len(likes)))).all() and np.isfinite(model.bounds).all()


def test_scores_serve_inside_a_fit_by_blocks(long_tailed):
    assert_scores_serve_inside(HPF(HPFSettings(**{**SHORT, "blocks": 3})), long_tailed)
