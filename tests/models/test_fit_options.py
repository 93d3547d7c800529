"""Fit options: an earlier fit to start from, validation users; nothing of them is stored with the model."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.fit_options import FitOptions, Start, sampling_seed
from oneclass.models.registry import MODELS
from tests.models.block_fits import shorten_phases
from tests.models.test_contract import unless_its_extra_is_absent

SHORT = {
    "random_graph": {"factors": 4, "iterations": 8},
    "paired_symbols": {"iterations": 2},
    "binary_matrix": {"factors": 4, "passes": 8},
    "hpf": {"factors": 4, "max_iterations": 5},
    "wmf": {"factors": 4, "iterations": 3},
    "bpr_uniform": {"factors": 4, "epochs": 8},
    "bpr_popularity": {"factors": 4, "epochs": 8},
    "cdae": {"hidden": 4, "epochs": 8},
    "mult_dae": {"hidden": 4, "epochs": 8},
    "mult_vae": {"hidden": 4, "latent": 3, "epochs": 8},
}
# Nothing but the first parameters depends on a start; the others have a schedule.
LEVEL = {"paired_symbols", "hpf", "wmf"}
NEURAL = {name for name, model in MODELS.items() if model.extra == "neural"}
WARM = [unless_its_extra_is_absent(name) for name, model in sorted(MODELS.items()) if model.is_iterative]
every_warm_model = pytest.mark.parametrize("name", WARM)


def make_model(name, **settings):
    return MODELS[name](MODELS[name].Settings(**SHORT[name] | settings), seed=3)


def same_places(previous, matrix):
    return Start(previous, *(np.arange(size) for size in matrix.shape))


def model_arrays(model):
    return {"item_degrees": model.item_degrees, **model._arrays()}


def assert_equal(one, other):
    own, expected = model_arrays(one), model_arrays(other)
    assert own.keys() == expected.keys()
    for name, array in own.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


@every_warm_model
def test_a_start_is_of_one_fit(name, checkerboard, long_tailed):
    first = make_model(name).fit(long_tailed)
    begun = make_model(name).fit(long_tailed, FitOptions(start=same_places(first, long_tailed)))
    with pytest.raises(AssertionError):
        assert_equal(begun, first)
    assert_equal(begun.fit(long_tailed), first)
    assert_equal(begun.fit(checkerboard), make_model(name).fit(checkerboard))


@every_warm_model
def test_a_model_can_begin_at_its_own_last_fit_and_leaves_the_earlier_one_as_it_was(name, long_tailed, tmp_path):
    model = make_model(name).fit(long_tailed)
    model.save(tmp_path)
    before = MODELS[name].load(tmp_path)
    other = make_model(name).fit(long_tailed, FitOptions(start=same_places(model, long_tailed)))
    assert_equal(model, before)
    assert_equal(model.fit(long_tailed, FitOptions(start=same_places(model, long_tailed))), other)


@every_warm_model
def test_where_everything_is_new_a_start_changes_no_vertex(name, long_tailed, checkerboard):
    """What is of no vertex is taken over even so: precisions, a bias, hidden layers, and the place in the schedule."""
    nothing = Start(make_model(name).fit(long_tailed), *(np.full(size, -1) for size in checkerboard.shape))
    begun, afresh = make_model(name).fit(checkerboard, FitOptions(start=nothing)), make_model(name).fit(checkerboard)
    if name in LEVEL:
        assert_equal(begun, afresh)
    assert begun.item_count == 40


@every_warm_model
def test_a_warm_fit_makes_the_last_quarter_of_a_schedule(name, long_tailed):
    def epochs(start=None):
        found = []
        model = make_model(name).fit(long_tailed, FitOptions(start=start, on_epoch=found.append))
        return model, found

    cold, whole = epochs()
    _, warm = epochs(same_places(cold, long_tailed))
    if name in LEVEL:
        assert len(warm) <= len(whole)
        return
    assert len(whole) == 8 and len(warm) == 2
    earlier = cold.best_epoch if name in NEURAL else 6  # the epochs of autoencoders are counted on
    assert [epoch.number for epoch in warm] == [earlier + 1, earlier + 2]
    for step in {"step_size", "rate"} & set(whole[0].values) if name != "binary_matrix" else ():
        assert [epoch.values[step] for epoch in warm] == [epoch.values[step] for epoch in whole[6:]]


@every_warm_model
def test_rows_are_taken_by_their_places(name, long_tailed):
    """Of users and items in another order: begun at their own rows a fit stays nearer to the earlier one than at
    others'.
    """
    order = users, items = tuple(np.random.default_rng(7).permutation(size) for size in long_tailed.shape)
    turned = csr_matrix(long_tailed[users][:, items])
    turned.sort_indices()
    first, everyone = make_model(name).fit(long_tailed), np.arange(300)
    expected = first.scores(long_tailed, users=everyone)[users][:, items]

    def likeness(places):
        begun = make_model(name).fit(turned, FitOptions(start=Start(first, *places)))
        return np.corrcoef(begun.scores(turned, users=everyone).ravel(), expected.ravel())[0, 1]

    own, of_others = likeness(order), likeness(tuple(np.roll(places, 1) for places in order))
    assert own > of_others


def test_no_two_nights_draw_alike_though_fits_from_nothing_do(long_tailed):
    assert sampling_seed(3, long_tailed, None) == sampling_seed(3, long_tailed[1:], None) == 3
    start = same_places(MODELS["popularity"]().fit(long_tailed), long_tailed)
    assert sampling_seed(3, long_tailed, start) != sampling_seed(3, long_tailed[1:], start)


def test_a_start_that_does_not_go_with_the_model_or_the_matrix_is_refused(long_tailed):
    first = make_model("hpf").fit(long_tailed)
    start = same_places(first, long_tailed)
    for model, place, expected in (
        (MODELS["popularity"](), start, "popularity cannot begin at an earlier fit"),
        (make_model("paired_symbols"), start, "paired_symbols cannot begin at a fit of hpf"),
        (make_model("hpf", factors=5), start, "factors: 5 here, 4 in the fit"),
        (make_model("hpf"), Start(first, np.arange(190), np.arange(120)), "190 users and .* the matrix is 300 x 120"),
        (make_model("hpf"), Start(first, np.arange(300), np.arange(119)), "119 items; the matrix is 300 x 120"),
    ):
        with pytest.raises(ValueError, match=expected):
            model.fit(long_tailed, FitOptions(start=place))
        assert not hasattr(model, "item_degrees")  # refused before anything was learned


@pytest.mark.parametrize("name", ["wmf", "paired_symbols", "random_graph"])
def test_a_fit_stops_where_its_objective_is_level(name, long_tailed, monkeypatch):
    kind, watched = MODELS[name], {"random_graph": "bound", "paired_symbols": "bound", "wmf": "loss"}[name]
    short = SHORT[name] | {"iterations": 60}
    if name == "random_graph":
        shorten_phases(monkeypatch, t_tau=10, t_epsilon=10, bound_every=2)

    def values(tolerance: float) -> tuple[int, list[float]]:
        epochs = []
        monkeypatch.setattr(f"oneclass.models.{name}.model.TOLERANCE", tolerance)
        kind(kind.Settings(**short)).fit(long_tailed, FitOptions(on_epoch=epochs.append))
        return len(epochs), [epoch.values[watched] for epoch in epochs if watched in epoch.values]

    tolerance = 0.005
    (passes, found), (all_passes, whole) = values(tolerance), values(0.0)
    assert all_passes == 60 and passes < 60 and found == whole[: len(found)]
    moved = np.abs(np.diff(whole)) / np.abs(whole[:-1])
    first = 9 if name == "random_graph" else 0  # changes that do not count: those before iteration 20
    assert len(found) - 2 == first + int(np.argmax(moved[first:] < tolerance))
