"""How much less older likes weigh, against a fit for each exponent, on logs whose order matters or does not."""

import shutil
from datetime import date, datetime, timedelta
from functools import cache

import numpy as np
import pytest

from oneclass.models.registry import MODELS
from oneclass.models.settings import RecencySettings
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.protocols import NEXT_EVENTS_VALIDATION
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import split
from oneclass.tasks.stores import warehouse
from oneclass.tasks.tuning import auto
from oneclass.tasks.tuning.recency import choose_recency
from oneclass.tasks.tuning.search import Search
from oneclass.tasks.tuning.stage import tune
from oneclass.tasks.tuning.trial import evaluate_model
from tests.conftest import home_in, log_into

FIRST = datetime(2026, 1, 1)


@pytest.fixture(scope="module")
def make_log(tmp_path_factory):
    """Make a home and its splits, once of a kind."""

    @cache
    def make(shuffled, order):
        home = home_in(tmp_path_factory.mktemp("log"))
        generator, events = np.random.default_rng(5), []
        for user in range(200):
            tastes = generator.choice(4, size=2, replace=False)
            items = np.concatenate([12 * taste + generator.permutation(12)[:8] for taste in tastes])
            items = generator.permutation(items) if shuffled else items
            events += [(f"u{user}", f"i{item}", 1, FIRST + timedelta(days=day)) for day, item in enumerate(items)]
        log_into(home, events)
        binarize(home, BinarizeSettings(), "run")
        return home, split(home, SplitSettings(order=order), "run", protocols=["next_events"], seed=1).digests

    return make


@pytest.fixture
def log(home, make_log):
    """Eight likes of one taste, then eight of another, a day each; shuffled, the order says nothing."""

    def of(*, shuffled=False, order=True):
        original, digests = make_log(shuffled, order)
        shutil.copytree(original.root, home.root)
        return digests

    return of


@pytest.mark.parametrize("name", ["item_knn", "graph_filter"])
def test_the_exponent_is_the_first_of_a_fit_for_each_that_the_next_does_not_improve_on(home, log, name):
    settings = MODELS[name].Settings()
    search = Search(name, "next_events", log()[NEXT_EVENTS_VALIDATION], settings, {}, weighs_recency=True)
    data = search.validation_data(home)
    values = []
    for exponent in RecencySettings.exponents:
        model = MODELS[name](settings.model_copy(update={"recency_exponent": exponent}), seed=0, threads=1)
        values.append(evaluate_model([model.fit(data.train)], [data.part], search.metric)[0].value)
    best = next((at for at in range(len(values) - 1) if values[at + 1] <= values[at]), len(values) - 1)
    assert best > 0
    assert choose_recency(home, search, {}) == {"recency_exponent": RecencySettings.exponents[best]}


def test_where_the_order_tells_nothing_likes_weigh_alike(home, log):
    settings = MODELS["item_knn"].Settings()
    search = Search("item_knn", "next_events", log(shuffled=True)[NEXT_EVENTS_VALIDATION], settings, {})
    assert choose_recency(home, search, {}) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("order", "given", "expected"), [(True, [], True), (False, [], False), (True, ["recency_exponent"], False)]
)
def test_the_search_of_a_run_weighs_recent_likes(home, log, order, given, expected):
    models = {"item_knn": MODELS["item_knn"].Settings()}
    digests, day = log(order=order), date(2026, 2, 1)
    for run_id, origin in (("first", "search"), ("second", "kept")):
        request = auto.SearchRequest("auto", given={"item_knn": given})
        found = tune(
            home, run_id, protocol="next_events", digests=digests, models=models, request=request, day=day, seed=1
        )
        with warehouse.open_warehouse(home, read_only=True) as connection:
            query = "select origin, reason from operations.model_settings where run_id = ?"
            [row] = connection.execute(query, [run_id]).fetchall()
        assert (found["item_knn"].recency_exponent > 0) == expected == ("recency_exponent" in row[1])
        assert row[0] == origin
