"""A search's result is taken again at the bounds of its age and of the log's growth, and not beyond them."""

from datetime import date, timedelta

import pytest
from scipy.sparse import random_array

from oneclass.models.registry import MODELS
from oneclass.tasks.stores import runs
from oneclass.tasks.tuning import auto
from tests.conftest import home_in

DAY = date(2024, 2, 1)


def describe_data(home, day=DAY, shape=(400, 200), edges=800):
    train = random_array(shape, density=edges / (shape[0] * shape[1]), format="csr", rng=1)
    assert train.nnz == edges
    return auto.SearchData(home, "strong_generalization", "digest", train, day, 0)


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """(home, search): a home that keeps the result of a search."""
    home = home_in(tmp_path_factory.mktemp("searched"))
    settings = MODELS["wmf"].Settings()
    log = describe_data(home)
    search = auto._build_search(log, "wmf", settings, ())
    row = {
        "protocol": log.protocol, "searched_on": DAY, "metric": search.metric, "trials": 12, "seconds": 1.0,
        "at_start": 0.1, "reached": 0.2, "standard_error": 0.01, **log.sizes, "key": auto._search_key(log, search),
    }  # fmt: skip
    with runs.record_run(home, "first", "nightly-retrain", {}):
        auto.record_settings(home, "first", [auto.ChosenSettings("wmf", "search", "factors 8", settings, row)])
    return home, search


@pytest.mark.parametrize(("days", "taken"), [(-1, False), (0, True), (30, True), (31, False)])
def test_for_thirty_days(searched, days, taken):
    home, search = searched
    assert (auto._find_stored_settings(describe_data(home, DAY + timedelta(days)), search) is not None) == taken


@pytest.mark.parametrize(
    ("shape", "edges", "taken"),
    [
        ((500, 200), 800, True), ((501, 200), 800, False), ((320, 200), 800, True), ((319, 200), 800, False),
        ((400, 250), 800, True), ((400, 251), 800, False), ((400, 160), 800, True), ((400, 159), 800, False),
        ((400, 200), 1000, True), ((400, 200), 1001, False), ((400, 200), 640, True), ((400, 200), 639, False),
    ],
)  # fmt: skip
def test_until_the_log_has_grown_or_shrunk_by_a_quarter(searched, shape, edges, taken):
    home, search = searched
    assert (auto._find_stored_settings(describe_data(home, shape=shape, edges=edges), search) is not None) == taken
