"""What users considered and did not like, fitted to a value between 0 and 1: against normal equations and the loss in
float64.
"""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.blend import Blend, BlendSettings
from oneclass.models.fit_options import DEFAULT_OPTIONS, FitOptions
from oneclass.models.wmf.model import WMF, WMFSettings

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


def test_items_solve_their_normal_equations(log, monkeypatch):
    """Those of the last half pass: pairs in S pull with p, and all pairs with alpha0."""
    likes, considered = log
    p = likes + WEIGHT * considered
    monkeypatch.setattr("oneclass.models.wmf.model.STEPS", 30)
    model = fit_model(likes, considered, iterations=3)
    active = p.any(axis=1)
    weights = np.where(active, np.where(active, p.sum(axis=1), 1.0) ** -0.3, 0.0)
    weights = np.where(active, weights / weights[active].mean(), 1.0)
    u, seen = model.user_factors.astype(float), p > 0
    for item in range(40):
        of_users = weights * (seen[:, item] + 0.1)
        ridge = 0.01 * ((weights * seen[:, item]).sum() + 0.1 * weights.sum())
        solved = np.linalg.solve((of_users[:, None] * u).T @ u + ridge * np.eye(8), u.T @ (weights * p[:, item]))
        np.testing.assert_allclose(model.item_factors[item], solved, atol=2e-4)


def test_the_loss_falls_to_that_of_the_factors(log):
    likes, considered = log
    values = []
    settings = WMFSettings(**SETTINGS, explicit_negative_weight=WEIGHT, user_weight_exponent=0.0)
    options = FitOptions(
        explicit_negatives=csr_matrix(considered), on_epoch=lambda epoch: values.append(epoch.values["loss"])
    )
    model = WMF(settings, seed=3).fit(csr_matrix(likes), options)
    u, v, p = model.user_factors.astype(float), model.item_factors.astype(float), likes + WEIGHT * considered
    of_users, of_items = (0.01 * ((p > 0).sum(axis=side) + 0.1 * p.shape[side]) for side in (1, 0))
    loss = ((p > 0) * (u @ v.T - p) ** 2).sum() + 0.1 * ((u @ v.T) ** 2).sum()
    loss += of_users @ (u**2).sum(axis=1) + of_items @ (v**2).sum(axis=1)
    assert values == sorted(values, reverse=True) and values[-1] == pytest.approx(loss, rel=1e-5)


def have_same_factors(one, other):
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("user_factors", "item_factors"))


def test_where_the_log_tells_of_none_or_the_weight_is_0_nothing_changes(log):
    likes, considered = log
    plain = fit_model(likes, explicit_negative_weight=0.0)
    assert have_same_factors(plain, fit_model(likes)) and have_same_factors(
        plain, fit_model(likes, np.zeros_like(likes))
    )
    assert have_same_factors(
        plain, fit_model(likes, considered, explicit_negative_weight=0.0)
    ) and not have_same_factors(plain, fit_model(likes, considered))


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
