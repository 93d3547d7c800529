"""The search that a run makes by itself: which models it is for, what it finds, and how long that is kept."""

import dataclasses
import json
import time
from datetime import date, timedelta
from typing import ClassVar

import numpy as np
import pytest
from pydantic import Field
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.derived_settings import RelativeRange, apply_trial
from oneclass.models.fit_options import Epoch
from oneclass.models.memory_estimates import FitCost
from oneclass.models.popularity import Popularity
from oneclass.models.registry import MODELS
from oneclass.models.settings import ModelSettings, NumericRange
from oneclass.tasks.stores import matrices, warehouse
from oneclass.tasks.tuning import auto, halving, search
from oneclass.tasks.tuning.validation import load_validation
from tests.conftest import home_in, log_into
from tests.tasks.conftest import copy_of, split_likes

PROTOCOL, DAY = "strong_generalization", date(2026, 3, 1)
BEST = 0.3  # times the rule
NUM_TRIALS = halving.ROUNDS[-1]


class DialSettings(ModelSettings):
    """One setting that counts, relative to the number of edges; one that costs; one that does nothing."""

    search_space: ClassVar = {
        "dial": RelativeRange(1 / 8, 8),
        "factors": NumericRange(1, 9, manual_only=True),
        "idle": NumericRange(0.0, 1.0),
    }

    dial: float | None = Field(None, description="Best at BEST times the edges.")
    factors: int = Field(2, description="Nothing.")
    idle: float = Field(0.5, description="Nothing.")

    def resolve(self, interactions):
        return self if self.dial is not None else self.model_copy(update={"dial": float(interactions.nnz)})


class Dial(Model):
    """Popularity, spoilt by noise the further the dial is from its best."""

    name = "dial"
    Settings = DialSettings
    fits: ClassVar[list] = []

    def _fit(self, interactions, options):
        if self.settings.idle < 0:
            raise ValueError("idle is below 0")
        self.fits.append((interactions.nnz, self.settings))
        off = abs(np.log(self.params.dial / (BEST * interactions.nnz)))
        self.draws = 2 * off * np.random.default_rng(self.seed).random(interactions.shape[1])

    def _scores(self, histories, users, score):
        scores = self.item_degrees / self.item_degrees.max() + self.draws
        return np.tile(scores.astype(np.float32), (histories.shape[0], 1))


@pytest.fixture(autouse=True)
def dial(monkeypatch):
    monkeypatch.setitem(MODELS, "dial", Dial)
    monkeypatch.setattr(Dial, "fits", [])
    return Dial


def add_log(home, users, file_id):
    """Log likes of so many users, 60 items with a long tail; the digests of the splits of all logs."""
    generator = np.random.default_rng(file_id)
    share = 1 / np.arange(1, 61) ** 1.2
    liked = [generator.choice(60, size=12, replace=False, p=share / share.sum()) for _ in range(users)]
    log_into(home, [(f"{file_id}u{u}", f"i{i}", 1) for u, items in enumerate(liked) for i in items], file_id=file_id)
    return split_likes(home, PROTOCOL, held_out_share=0.3)


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    home = home_in(tmp_path_factory.mktemp("logged"))
    return home, add_log(home, 300, 1)


digests = copy_of("logged")


def tune_dial(home, digests, run_id="run", **asked):
    """The dial's settings after `tune`, and its row."""
    models = {"dial": DialSettings(), "popularity": Popularity.Settings()}
    asked = {"models": models, "when": "auto", "day": DAY, "seed": 1} | asked
    of_request = ("when", "given", "tuned", "seed", "day")
    wanted = auto.SearchRequest(PROTOCOL, **{name: asked.pop(name) for name in of_request if name in asked})
    found = auto.tune(home, run_id, wanted, digests, **asked)
    assert found.keys() == {"dial", "popularity"}
    with warehouse.open_warehouse(home, read_only=True) as connection:
        query = "select * from operations.model_settings where run_id = ?"
        [row] = connection.sql(query, params=[run_id]).pl().to_dicts()
    assert json.loads(row["settings"]) == found["dial"].model_dump()
    return found["dial"], row


def load_trials(home, run_id):
    with warehouse.open_warehouse(home, read_only=True) as connection:
        found = "from operations.search_trials where run_id = $run_id order by number"
        return warehouse.query(connection, found, run_id=run_id)


@pytest.mark.parametrize("sample", [None, 600])
def test_a_search_finds_a_multiple_of_what_the_rule_takes_from_the_log_and_its_trials_are_recorded(
    home, digests, dial, monkeypatch, sample
):
    """On a sample too the multiple is put on the whole log."""
    monkeypatch.setattr(auto, "MIN_SAMPLE_EDGES", sample or auto.MIN_SAMPLE_EDGES)
    found, row = tune_dial(home, digests)
    train = load_validation(home, digests[PROTOCOL], 1).train
    assert row["origin"] == "search" and row["trials"] == NUM_TRIALS == len(dial.fits)
    assert row["reached"] > row["at_start"] and row["searched_on"] == DAY
    assert (row["users"], row["items"], row["edges"]) == (*train.shape, train.nnz)
    assert 0.15 < found.dial / train.nnz < 0.6 and found.factors == 2  # what costs is left alone
    assert dial.fits[0][1] == DialSettings()  # the settings as they are come first
    assert all(0.8 < edges / (sample or train.nnz) < 1.2 for edges, _ in dial.fits) and train.nnz > 1200
    trials = load_trials(home, "run")
    assert trials["number"].to_list() == list(range(1, NUM_TRIALS + 1))
    fitted = [(edges, settings.model_dump(mode="json")) for edges, settings in dial.fits]
    assert list(zip(trials["edges"], map(json.loads, trials["settings"]), strict=True)) == fitted
    assert trials["value"].max() == row["reached"]
    assert trials["value"][0] == row["at_start"] and set(trials["state"]) == {"done"}
    if not sample:
        for run_id, when, origin in (("kept", "auto", "kept"), ("anew", "always", "search"), ("off", "off", "default")):
            assert tune_dial(home, digests, run_id, when=when)[1]["origin"] == origin
            assert len(load_trials(home, run_id)) == (NUM_TRIALS if origin == "search" else 0)
        assert load_trials(home, "run").equals(trials)


def test_a_fit_that_takes_far_longer_than_the_initial_settings_is_stopped(home, digests, dial, monkeypatch):
    """The best dials are made slow, in eight epochs."""
    ended = []

    class Slow(dial):
        def _fit(self, interactions, options):
            super()._fit(interactions, options)
            if self.settings != DialSettings() and self.params.dial < interactions.nnz:
                for number in range(1, 9):
                    time.sleep(0.1)
                    options.on_epoch(Epoch(number, 8, 0.1))
                ended.append(self.settings)

    monkeypatch.setitem(MODELS, "dial", Slow)
    monkeypatch.setattr(search, "MIN_LIMIT_SECONDS", 0.25)
    found, row = tune_dial(home, digests)
    assert not ended and (found.dial is None or found.dial > row["edges"])


@pytest.mark.slow
def test_a_search_is_kept_for_a_month_and_until_the_log_has_moved(home, digests, dial):
    found, first = tune_dial(home, digests)
    for later, origin in ((0, "kept"), (30, "kept"), (-1, "search"), (31, "search")):
        dial.fits.clear()
        again, row = tune_dial(home, digests, f"after {later}", day=DAY + timedelta(later))
        assert row["origin"] == origin and bool(dial.fits) == (origin == "search")
        assert again == found and (origin == "search" or row["searched_on"] == first["searched_on"])
    grown = add_log(home, 40, 2)
    assert tune_dial(home, grown, "a little more", day=DAY + timedelta(3))[1]["origin"] == "kept"
    doubled = add_log(home, 300, 3)
    assert tune_dial(home, doubled, "twice as much", day=DAY + timedelta(4))[1]["origin"] == "search"


@pytest.mark.slow
def test_a_search_for_something_else_is_not_taken(home, digests):
    tune_dial(home, digests)
    fixed = {"dial": DialSettings(factors=3), "popularity": Popularity.Settings()}
    ends = np.arange(matrices.load_split(home, digests[PROTOCOL]).train.nnz) % 4 == 3
    latest = dataclasses.replace(matrices.load_split(home, digests[PROTOCOL], parts=()), latest_mask=ends)
    by_ends = {PROTOCOL: matrices.store_split(home, latest)}
    for number, other in enumerate(({"seed": 3}, {"given": {"dial": ["idle"]}}, {"models": fixed})):
        assert tune_dial(home, digests, f"other {number}", **other)[1]["origin"] == "search"
    assert tune_dial(home, by_ends, "ends")[1]["origin"] == "search"


def test_what_was_given_stays(home, digests, dial):
    mine = {"dial": DialSettings(dial=900.0), "popularity": Popularity.Settings()}
    found, row = tune_dial(home, digests, models=mine, given={"dial": ["dial"]})
    assert found.dial == 900.0 and row["origin"] == "search"
    dial.fits.clear()
    found, row = tune_dial(home, digests, "all", models=mine, given={"dial": ["dial", "idle"]})
    assert found == mine["dial"] and row["origin"] == "given" and not dial.fits


def test_without_a_search_the_reason_is_reported(home, digests, dial):
    found, row = tune_dial(home, digests, tuned=["dial"])
    assert found == DialSettings() and row["origin"] == "data set" and "the data set's file" in row["reason"]
    few = add_log(home_in(home.root / "few"), 60, 1)
    found, row = tune_dial(home_in(home.root / "few"), few)
    assert found == DialSettings() and row["origin"] == "default" and "users are too few" in row["reason"]
    assert not dial.fits


def test_a_model_whose_cost_is_of_its_items_is_searched_on_some_of_them(home, digests, dial, monkeypatch):
    cost = FitCost(1000, 1.0, depends_on_items=True)
    monkeypatch.setattr(dial, "estimate_cost", staticmethod(lambda settings, log: cost))
    monkeypatch.setattr(auto, "MAX_ITEMS", 20)
    tune_dial(home, digests)
    degrees = np.sort(matrices.load_split(home, digests[PROTOCOL]).train.getnnz(axis=0))
    assert {edges for edges, _ in dial.fits} == {degrees[-20:].sum()}


def test_a_multiple_rests_on_the_values_before_it():
    likes, wmf = csr_matrix(np.eye(20, 10, dtype=np.float32)), MODELS["wmf"].Settings()
    found = apply_trial(wmf, {"unobserved_weight": 2.0, "regularization": 3.0}, likes)
    by_rule = wmf.model_copy(update={"unobserved_weight": found.unobserved_weight}).resolve(likes)
    assert found.regularization == pytest.approx(3 * by_rule.regularization)


@pytest.mark.slow
@pytest.mark.parametrize("given", [False, True])
def test_later_trials_take_what_costs_of_the_best_unless_it_was_given(home, digests, dial, monkeypatch, given):
    class Spoilt(dial):
        def _fit(self, interactions, options):
            super()._fit(interactions, options)
            if self.settings.factors < 5:
                self.draws += 2 * np.random.default_rng(9).random(interactions.shape[1])

    monkeypatch.setattr(DialSettings, "initial_trials", ({"factors": 5, "dial": BEST}, {"dial": BEST / 2}))
    monkeypatch.setitem(MODELS, "dial", Spoilt)
    found, row = tune_dial(home, digests, given={"dial": ["factors"]} if given else {})
    tried, best_factors = [settings for _, settings in dial.fits], 2 if given else 5
    assert [one.dial for one in tried[1:3]] == [pytest.approx(dial * row["edges"]) for dial in (BEST, BEST / 2)]
    assert [one.factors for one in tried] == [2, best_factors, 2] + [best_factors] * (len(tried) - 3) and len(tried) > 3
    assert found.factors == best_factors
