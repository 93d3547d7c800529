"""Successive halving over models: who gets how many trials, by their values and by the budget."""

import math
import time
from typing import ClassVar

import numpy as np
import pytest
from pydantic import Field

from oneclass.models.base import Model
from oneclass.models.popularity import Popularity
from oneclass.models.registry import MODELS
from oneclass.models.settings import ModelSettings, NumericRange
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.cluster.executor import LocalCall
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import split
from oneclass.tasks.tuning import record_pending_trial
from oneclass.tasks.tuning.halving import (
    MIN_BUDGET_SECONDS,
    ROUNDS,
    SearchBudget,
    confirm_settings,
    run_searches,
    run_trials,
)
from oneclass.tasks.tuning.search import Search
from tests.conftest import home_in, log_into

PROTOCOL = "strong_generalization"
NOISE = {"still": 0.0, "calm": 0.5, "windy": 1.0, "stormy": 2.0, "wild": 4.0}  # the least noise of each model


class WindSettings(ModelSettings):
    search_space: ClassVar = {"wind": NumericRange(0.0, 1.0)}

    wind: float = Field(0.9, description="Further noise.")


class Wind(Model):
    """Popularity, spoilt by noise."""

    name = "wind"
    Settings = WindSettings
    least: ClassVar[float]

    def _fit(self, interactions, options):
        noise = np.random.default_rng(self.seed).random(interactions.shape[1])
        self.draws = (self.least + self.settings.wind) * noise

    def _scores(self, histories, users, score):
        scores = self.item_degrees / self.item_degrees.max() + self.draws
        return np.tile(scores.astype(np.float32), (histories.shape[0], 1))


@pytest.fixture(autouse=True)
def models(monkeypatch):
    for name, least in NOISE.items():
        monkeypatch.setitem(MODELS, name, type(name, (Wind,), {"name": name, "least": least}))


@pytest.fixture(scope="module")
def split_log(tmp_path_factory):
    """(home, digest): the split of 300 users and 60 items with a long tail; nothing is written by a search."""
    home = home_in(tmp_path_factory.mktemp("halving"))
    generator, share = np.random.default_rng(4), 1 / np.arange(1, 61) ** 1.2
    liked = [generator.choice(60, size=12, replace=False, p=share / share.sum()) for _ in range(300)]
    log_into(home, [(f"u{u}", f"i{i}", 1) for u, items in enumerate(liked) for i in items])
    binarize(home, BinarizeSettings(), "run")
    settings = SplitSettings(held_out_share=0.3)
    return home, split(home, settings, "run", protocols=(PROTOCOL,), seed=1).digests[PROTOCOL]


class Clock:
    """An executor that runs here, and whose trials and looks at a larger sample take stated seconds."""

    worker_memory = None

    def __init__(self, seconds):
        self.seconds = seconds

    def submit(self, function, home, search, *arguments, label="", memory=0):
        each = self.seconds[search.model]
        if function is confirm_settings:
            return LocalCall(lambda: (function(home, search, *arguments)[0], 2 * each), ())
        earlier, trials, limit = arguments
        new = min(trials - len(earlier), math.ceil(max(limit, 0) / each) if limit < math.inf else trials)

        return LocalCall(lambda: (run_trials(home, search, earlier, len(earlier) + new, math.inf)[0], new * each), ())


def make_search(digest, model, **options):
    space = WindSettings.search_space
    return Search(model, PROTOCOL, digest, WindSettings(), space, 1, quick=True, **options)


def search_models(split_log, seconds=1.0, share=1.0, names=tuple(NOISE), fits=2, most=math.inf, **options):
    home, digest = split_log
    seconds = seconds if isinstance(seconds, dict) else dict.fromkeys(names, seconds)
    searches = [make_search(digest, name, **options) for name in names]
    return run_searches(home, searches, SearchBudget(share, fits, most), record_pending_trial, Clock(seconds))


def best_of(progress, trials):
    return max(outcome.value for outcome in progress.outcomes[:trials])


def test_after_each_round_the_better_half_goes_on_and_its_trials_are_those_of_a_search_of_its_own(split_log):
    progress = {of.search.model: of for of in search_models(split_log)}
    live, made = list(NOISE), dict.fromkeys(NOISE, 0)
    for trials in ROUNDS:
        made |= dict.fromkeys(live, trials)
        live = sorted(live, key=lambda name: -best_of(progress[name], trials))[: math.ceil(len(live) / 2)]
    assert {name: len(of.results) for name, of in progress.items()} == made
    assert sorted(made.values()) == [ROUNDS[0]] * 2 + [ROUNDS[1]] + [ROUNDS[2]] * 2
    for name, of in progress.items():
        assert of.stopped == {4: "3 models were better", 8: "2 models were better", 12: ""}[made[name]]
    for name in ("still", "wild"):
        [alone] = search_models(split_log, names=(name,))
        assert len(alone.results) == ROUNDS[-1] and not alone.stopped
        together = progress[name].outcomes
        assert [of.settings for of in alone.outcomes[: len(together)]] == [of.settings for of in together]
        assert [of.value for of in alone.outcomes[: len(together)]] == [of.value for of in together]


@pytest.mark.parametrize(("most", "allowed"), [(math.inf, 3000.0), (900.0, 900.0), (5.0, MIN_BUDGET_SECONDS)])
def test_a_budget_is_a_share_of_the_fits_up_to_a_limit_and_never_below_two_minutes(split_log, most, allowed, caplog):
    assert SearchBudget(1.5, 4, most).seconds(500.0) == allowed
    with caplog.at_level("INFO"):
        search_models(split_log, 100.0, share=3.0, names=("calm", "windy"), fits=5, most=most)
    assert f"of a budget of {allowed:.0f}" in caplog.text


@pytest.mark.parametrize(
    ("seconds", "share"),
    [
        ({"still": 12.0, "calm": 1.0, "windy": 1.0, "stormy": 1.0, "wild": 60.0}, 0.01),
        ({"still": 100.0, "calm": 50.0, "windy": 30.0, "stormy": 20.0, "wild": 60.0}, 2.0),
        ({"still": 500.0, "calm": 400.0, "windy": 300.0, "stormy": 200.0, "wild": 100.0}, 0.1),
    ],
)
def test_a_round_divides_what_is_left_among_the_models_in_the_race(split_log, seconds, share):
    progress = {of.search.model: of for of in search_models(split_log, seconds, share, fits=3)}
    budget = max(MIN_BUDGET_SECONDS, 3 * share * sum(seconds.values()))
    live, made = list(NOISE), dict.fromkeys(NOISE, 1)
    for rounds_left, trials in zip((4, 3, 2), ROUNDS, strict=True):
        left = budget - sum(made[name] * seconds[name] for name in NOISE)
        for name in live:
            begun = 0
            while made[name] < trials and begun * seconds[name] < left / rounds_left / len(live):
                begun, made[name] = begun + 1, made[name] + 1
        live = sorted(live, key=lambda name: -best_of(progress[name], made[name]))[: math.ceil(len(live) / 2)]
    assert {name: len(of.results) for name, of in progress.items()} == made
    assert {name for name, of in progress.items() if not of.stopped} == {n for n in made if made[n] == ROUNDS[-1]}
    assert all("of the budget" in progress[name].stopped for name in live if made[name] < ROUNDS[-1])
    assert all(of.cpu_seconds == made[name] * seconds[name] for name, of in progress.items())
    spent = sum(of.cpu_seconds for of in progress.values())
    assert spent <= budget + sum(2 * of for of in seconds.values())


def test_the_budget_of_a_large_log_is_a_share_of_its_fits(split_log):
    """On a sample of a third a trial takes a third of a fit."""
    seconds = dict.fromkeys(("still", "calm"), 1000.0)
    of = {share: search_models(split_log, seconds, share, tuple(seconds), edges=800) for share in (0.1, 1.0)}
    home, digest = split_log
    edges = [run.search.validation_data(home).train.nnz for run in of[1.0]]
    whole = make_search(digest, "still").validation_data(home).train.nnz
    assert whole / edges[0] > 1.5
    assert all(run.stopped for run in of[0.1]) and [len(run.results) for run in of[0.1]] == [1, 1]
    assert sum(len(run.results) for run in of[1.0]) > 2


def test_the_best_model_is_confirmed_on_a_larger_sample_and_others_while_the_budget_lasts(split_log):
    with_time = {of.search.model: of for of in search_models(split_log, edges=800)}
    assert all(len(of.confirmed) == 2 for of in with_time.values())
    short = search_models(split_log, dict.fromkeys(NOISE, 16.0), 0.001, edges=800)
    best = max(short, key=lambda of: of.gain)
    assert best.search.model == "still" and len(best.confirmed) == 2
    unconfirmed = [of for of in short if not of.confirmed and of.best.values]
    assert unconfirmed and all("no time was left for a larger sample" in of.stopped for of in unconfirmed)


def test_models_are_compared_by_their_gain_over_popularity_on_their_own_items(split_log):
    few, all_items = (search_models(split_log, names=("calm",), edges=800, items=items)[0] for items in (20, None))
    for of in (few, all_items):
        data = of.search.validation_data(split_log[0])
        scores = Popularity().fit(data.train).scores(data.part.histories).astype(float)
        scores[data.part.histories.nonzero()] = -np.inf
        ndcg = [naive_ndcg(row, data.part.targets[user].indices) for user, row in enumerate(scores)]
        assert of.baseline == pytest.approx(np.mean(ndcg))
        assert of.gain == pytest.approx(of.best.value / np.mean(ndcg))
    assert few.best.value > all_items.best.value


def naive_ndcg(scores, targets, k=100):
    order = np.argsort(-scores, kind="stable")[:k]
    gains = np.isin(order, targets) / np.log2(np.arange(2, len(order) + 2))
    return gains.sum() / (1 / np.log2(np.arange(2, min(k, len(targets)) + 2))).sum()


def test_no_trial_begins_after_the_time_and_earlier_ones_are_kept(split_log):
    home, digest = split_log
    search = make_search(digest, "calm")
    first, seconds = run_trials(home, search, (), 3, math.inf)
    assert len(first) == 3 and 0 < seconds < 60
    started = time.monotonic()
    assert run_trials(home, search, first, 12, 0.0)[0] == first
    later, _ = run_trials(home, search, first, 6, math.inf)
    assert later[:3] == first and [of.outcome.number for of in later] == list(range(1, 7))
    whole, _ = run_trials(home, search, (), 6, math.inf)
    assert [of.outcome.settings for of in whole] == [of.outcome.settings for of in later]
    assert time.monotonic() - started < 60
