"""Paired symbols with availability windows against a dense oracle in which unavailable pairs are never censored."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from pydantic import ValidationError
from scipy.sparse import csr_matrix

from oneclass.models.fit_options import FitOptions
from oneclass.models.negatives.availability import find_availability
from oneclass.models.numerics.sequential_histories import with_event_ages
from oneclass.models.paired_symbols.model import PairedSymbols
from oneclass.models.paired_symbols.posterior import PairedSymbolsPosterior
from tests.models.negatives.test_availability import draw_timed_likes
from tests.models.paired_symbols.test_paired_symbols import Dense, apply_step, assert_same, small_counts

COUNTS = small_counts(seed=4)
COUNTS[3:, 0] = COUNTS[0, 6:] = 0  # no user has everything, and nobody an item of every age
MATRIX = with_event_ages(csr_matrix(COUNTS), draw_timed_likes(COUNTS > 0, 5, days=60).event_ages)
BLOCKS = ("users", "pi", "items", "psi", "xi")


def posterior_after(passes: int) -> PairedSymbolsPosterior:
    posterior = PairedSymbols(availability=True, r=1.5, tau_u=0.8, tau_b=1.3)._initial_posterior(MATRIX)
    for _ in range(passes):
        for block in BLOCKS:
            apply_step(posterior, block)
    return posterior


def test_censored_pairs_of_a_user_are_of_available_items() -> None:
    posterior = posterior_after(0)
    dense, events = Dense.of(posterior, COUNTS), COUNTS.sum()
    assert 0 < dense.available.mean() < 1 and dense.available[COUNTS > 0].all()
    exposure = COUNTS.sum(axis=1) @ dense.available / events
    shares = COUNTS.sum(axis=0) / exposure * dense.available
    expected = 1.5 * COUNTS.sum(axis=1, keepdims=True) * shares / shares.sum(axis=1, keepdims=True)
    assert_allclose(dense.censored_counts(), expected, rtol=1e-6)
    assert_allclose(posterior.users.marginals, expected.sum(axis=1) / (1.5 * events), rtol=1e-6)
    assert_allclose(posterior.items.marginals, expected.sum(axis=0) / (1.5 * events), rtol=1e-6)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_update_is_the_dense_one(block: str) -> None:
    posterior = posterior_after(2)
    dense = Dense.of(posterior, COUNTS)
    apply_step(posterior, block)
    dense.apply(block)
    assert_same(posterior, dense, COUNTS)


def test_no_block_lowers_the_bound_which_is_the_dense_one() -> None:
    posterior = posterior_after(0)
    bound = began = posterior.bound()
    for _ in range(20):
        for block in ("users", "items", "xi"):
            apply_step(posterior, block)
            new = posterior.bound()
            assert new > bound - 2e-7 * abs(bound), block
            bound = new
        dense = Dense.of(posterior, COUNTS)
        assert_allclose(bound, dense.bound(dense.xi()), rtol=1e-7)
    assert bound > began + 50


def test_where_everything_is_available_the_bound_climbs_as_without_windows() -> None:
    always = np.tile(np.array([[10**6], [-(10**6)]], dtype=np.int32), COUNTS.shape[1])
    fits: dict[bool, list[float]] = {False: [], True: []}
    for on, climbed in fits.items():
        options = FitOptions(item_windows=always, on_epoch=lambda e, climbed=climbed: climbed.append(e.values["bound"]))
        PairedSymbols(availability=on, iterations=6, tolerance=0).fit(MATRIX, options)
    assert fits[True] == pytest.approx(fits[False], rel=1e-6)


def test_a_user_is_folded_in_as_in_training_and_bits_do_not_depend_on_threads(tmp_path) -> None:
    one, two = (PairedSymbols(availability=True, seed=5, threads=n, iterations=4).fit(MATRIX) for n in (1, 2))
    for name, array in one._arrays().items():
        assert_array_equal(array, two._arrays()[name])
    posterior, lane = posterior_after(6), posterior_after(0).users.rows.shape[1] // 2
    model = PairedSymbols(availability=True, r=1.5, tau_u=0.8, tau_b=1.3)
    model.fit(MATRIX, FitOptions())
    model._copy_posterior(posterior)
    folded = model.fold_in(MATRIX)
    for _ in range(60):
        apply_step(posterior, "users")
    assert_allclose(folded[:, :lane], posterior.users.rows[:, :lane], atol=2e-3)
    assert_array_equal(model.fold_in(MATRIX[3:5]), folded[3:5])
    one.save(tmp_path)
    read = PairedSymbols.load(tmp_path)
    assert_array_equal(read.scores(MATRIX), one.scores(MATRIX))
    law, users = read.negative_distribution(), np.arange(len(COUNTS))
    assert_allclose(law.user_shares, COUNTS.sum(axis=1) / COUNTS.sum(), rtol=1e-6)
    available = find_availability(MATRIX, one.item_windows).mask()
    drawn = np.array([law.draw(MATRIX, users, seed) for seed in range(50)])
    assert all(available[user, drawn[:, user]].all() for user in users)


def test_settings_that_contradict_one_another_are_refused() -> None:
    with pytest.raises(ValidationError, match="availability"):
        PairedSymbols(availability=True, learn_selection=True)
    with pytest.raises(ValueError, match="needs the times of events"):
        PairedSymbols(availability=True).fit(csr_matrix(COUNTS))
