"""What a fit may be told: an earlier fit to begin at, validation users; and that nothing of it stays behind."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from models.catalogue import MODELS
from models.fitting import FitOptions, Start, ValidationUsers

SHORT = {
    "random_graph": {"iterations": 4},
    "paired_symbols": {"iterations": 2},
    "binary_matrix": {"passes": 3},
    "hpf": {"max_iterations": 5},
}
WARM = sorted(name for name, model in MODELS.items() if model.warm_startable)
every_warm_model = pytest.mark.parametrize("name", WARM)


def make(name, **settings):
    return MODELS[name](MODELS[name].Settings(**{"factors": 4} | SHORT[name] | settings), seed=3)


def same_places(previous, matrix):
    return Start(previous, *(np.arange(size) for size in matrix.shape))


def arrays(model):
    return {"item_degrees": model.item_degrees, **model._arrays()}


def assert_equal(one, other):
    for (name, array), expected in zip(arrays(one).items(), arrays(other).values(), strict=True):
        np.testing.assert_array_equal(array, expected, err_msg=name)


@every_warm_model
def test_a_start_is_of_one_fit(name, checkerboard, long_tailed):
    first = make(name).fit(long_tailed)
    begun = make(name).fit(long_tailed, FitOptions(start=same_places(first, long_tailed)))
    with pytest.raises(AssertionError):
        assert_equal(begun, first)
    assert_equal(begun.fit(long_tailed), first)
    assert_equal(begun.fit(checkerboard), make(name).fit(checkerboard))


@every_warm_model
def test_a_model_can_begin_at_its_own_last_fit_and_leaves_the_earlier_one_as_it_was(name, long_tailed, tmp_path):
    model = make(name).fit(long_tailed)
    model.save(tmp_path)
    before = MODELS[name].load(tmp_path)
    other = make(name).fit(long_tailed, FitOptions(start=same_places(model, long_tailed)))
    assert_equal(model, before)
    assert_equal(model.fit(long_tailed, FitOptions(start=same_places(model, long_tailed))), other)


@every_warm_model
def test_where_everything_is_new_a_start_changes_no_vertex(name, long_tailed, checkerboard):
    """The precisions of the random graph and the bias and step sizes of the binary matrix are taken over even so."""
    nothing = Start(make(name).fit(long_tailed), *(np.full(size, -1) for size in checkerboard.shape))
    begun, afresh = make(name).fit(checkerboard, FitOptions(start=nothing)), make(name).fit(checkerboard)
    if name in {"paired_symbols", "hpf"}:
        assert_equal(begun, afresh)
    assert begun.item_count == 40


def test_a_start_that_does_not_go_with_the_model_or_the_matrix_is_refused(long_tailed):
    first = make("hpf").fit(long_tailed)
    start = same_places(first, long_tailed)
    for model, place, expected in (
        (MODELS["popularity"](), start, "popularity cannot begin at an earlier fit"),
        (make("paired_symbols"), start, "paired_symbols cannot begin at a fit of hpf"),
        (make("hpf", factors=5), start, "factors: 5 here, 4 in the fit"),
        (make("hpf"), Start(first, np.arange(190), np.arange(120)), "190 users and 120 items; the matrix is 300 x 120"),
        (make("hpf"), Start(first, np.arange(300), np.arange(119)), "300 users and 119 items; the matrix is 300 x 120"),
    ):
        with pytest.raises(ValueError, match=expected):
            model.fit(long_tailed, FitOptions(start=place))
        assert not hasattr(model, "item_degrees")  # refused before anything was learned


@pytest.mark.parametrize("shapes", [((5, 120), (6, 120)), ((5, 119), (5, 119)), ((5, 120), (5, 119))])
def test_validation_users_of_another_shape_are_refused(long_tailed, shapes):
    users = ValidationUsers(*(csr_matrix(shape, dtype=np.float32) for shape in shapes))
    with pytest.raises(ValueError, match="120 columns"):
        MODELS["popularity"]().fit(long_tailed, FitOptions(validation=users))


def test_a_model_that_does_not_stop_early_passes_validation_users_by(long_tailed):
    users = ValidationUsers(long_tailed[:5], long_tailed[5:10])
    assert_equal(
        MODELS["mrf_dense"]().fit(long_tailed, FitOptions(validation=users)), MODELS["mrf_dense"]().fit(long_tailed)
    )


@pytest.mark.parametrize("name", ["wmf", "paired_symbols", "random_graph"])
def test_a_fit_stops_where_its_objective_is_level(name, long_tailed):
    kind, watched = MODELS[name], {"random_graph": "bound", "paired_symbols": "bound", "wmf": "loss"}[name]
    short = {"factors": 4, "iterations": 60} | ({"bound_every": 2} if name == "random_graph" else {})

    def values(**settings) -> tuple[int, list[float]]:
        epochs = []
        kind(kind.Settings(**short, **settings)).fit(long_tailed, FitOptions(on_epoch=epochs.append))
        return len(epochs), [epoch.values[watched] for epoch in epochs if watched in epoch.values]

    tolerance = 0.005
    (passes, found), (all_passes, whole) = values(tolerance=tolerance), values(tolerance=0)
    assert all_passes == 60 and passes < 60 and found == whole[: len(found)]
    moved = np.abs(np.diff(whole)) / np.abs(whole[:-1])
    first = 9 if name == "random_graph" else 0  # changes that do not count: those before iteration 20
    assert len(found) - 2 == first + int(np.argmax(moved[first:] < tolerance))
