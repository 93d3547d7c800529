"""The mixture: its scores by hand, its shares, and its lists where nobody returns."""

import numpy as np
import pytest

from oneclass.models.fit_options import FitOptions
from oneclass.models.mrf.dense import MRFDense
from oneclass.models.repeat.mixture import RepeatMixture, RepeatMixtureSettings
from oneclass.models.repeat.model import Repeat
from tests.models.repeat.logs import WINDOW, compute_ndcg, simulate_log

COMPONENT = {"component": "mrf_dense"}


def fit_repeat(log):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oneclass.models.repeat.model.derive_window", lambda _: WINDOW)
        return Repeat().fit(log)


def make_mixture(log, **options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oneclass.models.repeat.model.derive_window", lambda _: WINDOW)
        return RepeatMixture(RepeatMixtureSettings(**COMPONENT)).fit(log, FitOptions(**options))


@pytest.fixture(scope="module")
def returning():
    return simulate_log(0.6)


@pytest.fixture(scope="module")
def fitted(returning):
    return make_mixture(returning[0])


@pytest.fixture(scope="module")
def component(returning):
    return MRFDense().fit(returning[0])


def mask_scores(scores, log):
    return np.where(log.toarray() > 0, -np.inf, scores)


def test_scores_are_the_probabilities_of_both_parts(returning, fitted, component):
    log = returning[0]
    again = fit_repeat(log)
    *b, slope = fitted.coefficients
    alone, scores = component.scores(log[:30]), fitted.scores(log[:30])
    of_component, of_history = mask_scores(alone, log[:30]), again.scores(log[:30])
    smoothing, overall = again.parameters["smoothing"], again.statistics.overall[0]
    for row in range(30):
        own = log[row]
        share = ((own.data - 1).sum() + smoothing * overall) / (own.data.sum() + smoothing)
        for item in range(80):
            rank = (of_component[row] > alone[row, item]).sum()
            odds = np.dot(b, [1, np.log(share / (1 - share)), np.log1p(own.nnz)]) + slope * np.log1p(rank)
            expected = of_history[row, item] if item in own.indices else 1 / (1 + np.exp(-odds))
            assert scores[row, item] == pytest.approx(expected, rel=1e-4)


def test_the_mixture_ranks_better_than_either_part(returning, fitted, component):
    log, later = returning
    mixed = compute_ndcg(fitted.scores(log), later)
    for other in (fitted.components[0].scores(log), component.scores(log), mask_scores(component.scores(log), log)):
        gain = mixed - compute_ndcg(other, later)
        assert gain.mean() > 2 * gain.std() / np.sqrt(len(gain))


def test_new_items_are_expected_as_often_as_they_are_taken(returning, fitted):
    log, later = returning
    active, is_new = np.diff(later.indptr) > 0, log.toarray() == 0
    expected = (fitted.scores(log) * is_new).sum(axis=1)[active]
    taken = ((later.toarray() > 0) & is_new).sum(axis=1)[active]
    assert expected.mean() == pytest.approx(taken.mean(), rel=0.25)


def test_where_nobody_returns_the_list_is_the_components():
    log, later = simulate_log(0.0)
    mixed = make_mixture(log)
    component = MRFDense().fit(log)
    expected = mask_scores(component.scores(log), log)
    np.testing.assert_array_equal(
        np.argsort(-mask_scores(mixed.scores(log), log), axis=1, kind="stable"),
        np.argsort(-expected, axis=1, kind="stable"),
    )
    gain = compute_ndcg(mixed.scores(log), later, k=20) - compute_ndcg(expected, later, k=20)
    assert abs(gain.mean()) < 0.002


def test_a_stored_fit_of_the_component_is_used(returning, fitted, component):
    asked, stored = [], {"repeat": fitted.components[0], "mrf_dense": component}
    loaded = make_mixture(
        returning[0], load_component=lambda name, settings: asked.append((name, settings)) or stored[name]
    )
    assert asked == [("repeat", Repeat.Settings()), ("mrf_dense", MRFDense.Settings())]
    assert loaded.components == [*stored.values()]
    np.testing.assert_array_equal(loaded.scores(returning[0]), fitted.scores(returning[0]))


@pytest.mark.parametrize("given", [{"component": "x"}, {"component": "repeat_mixture"}])
def test_a_component_that_ranks_no_new_items_is_refused(given):
    with pytest.raises(ValueError, match=r"component: \w+ is no model"):
        RepeatMixtureSettings(**given)
