"""Successive halving over models: who gets how many trials, by their values and by the budget."""

import math
from typing import ClassVar

import numpy as np
import pytest

from oneclass.models.memory_estimates import LogSize
from oneclass.models.popularity import Popularity
from oneclass.models.registry import MODELS
from oneclass.models.settings import NumericRange
from oneclass.tasks.cluster import PendingCall
from oneclass.tasks.evaluate.ranking import rank_part_targets
from oneclass.tasks.stores import matrices
from oneclass.tasks.tuning.halving import BUDGET_SECONDS, ROUNDS, run_searches, run_trials
from oneclass.tasks.tuning.search import Search
from tests.conftest import home_in
from tests.tasks.tuning.test_trials import Toy, ToySettings, split_toy_log

PROTOCOL = "strong_generalization"
NOISE = {"still": 0.0, "calm": 0.5, "windy": 1.0, "stormy": 2.0, "wild": 4.0}  # the least noise of each model
SPACE = {"noise": NumericRange(0.0, 0.3)}


class Wind(Toy):
    """Popularity, spoilt by noise of a setting and of the model's own."""

    score_names = ("score",)
    least: ClassVar[float]

    def _scores(self, histories, users, score):
        return super()._scores(histories, users, score) + np.float32(self.least) * self.draws.astype(np.float32)


@pytest.fixture(autouse=True)
def models(monkeypatch):
    for name, least in NOISE.items():
        monkeypatch.setitem(MODELS, name, type(name, (Wind,), {"name": name, "least": least}))


@pytest.fixture(scope="module")
def split_log(tmp_path_factory):
    """(home, digest); nothing is written by a search."""
    home = home_in(tmp_path_factory.mktemp("halving"))
    return home, split_toy_log(home, (PROTOCOL,))[PROTOCOL]


class Clock:
    """An executor that runs here, and whose trials take stated seconds."""

    worker_memory = None

    def __init__(self, seconds):
        self.seconds = seconds

    def submit(self, function, home, search, earlier, trials, limit, label=""):
        each = self.seconds[search.model]
        new = min(trials - len(earlier), math.ceil(max(limit, 0) / each) if limit < math.inf else trials)
        return PendingCall(lambda: (function(home, search, earlier, len(earlier) + new, math.inf)[0], new * each))


def search_models(split_log, seconds=1.0, splits=1.0, names=tuple(NOISE), edges=None, items=None, seed=1):
    home, digest = split_log
    seconds = seconds if isinstance(seconds, dict) else dict.fromkeys(names, seconds)
    start, size = ToySettings(noise=0.3), LogSize.of(matrices.load_split(home, digest, parts=()).train)
    searches = [Search(name, PROTOCOL, (digest,), start, SPACE, seed, edges, items, whole=size) for name in names]
    return run_searches(home, searches, splits, Clock(seconds))


def best_of(progress, trials):
    return max(trial.value for trial in progress.trials[:trials])


def go_on(progress, live, made, number):
    """The models that a search goes on with: the better half; after the last round but one, those that gained in it."""
    best = {name: best_of(progress[name], made[name]) for name in live}
    live = sorted(live, key=lambda name: -best[name])[: math.ceil(len(live) / 2)]
    late = {name for name in live if made[name] == ROUNDS[-2] and number == len(ROUNDS) - 2}
    return [name for name in live if name not in late or best[name] > best_of(progress[name], ROUNDS[-3])]


@pytest.mark.parametrize("seed", [1, 3])
def test_after_each_round_the_better_half_goes_on_and_its_trials_are_those_of_a_search_of_its_own(split_log, seed):
    progress = {of.search.model: of for of in search_models(split_log, seed=seed)}
    live, made = list(NOISE), dict.fromkeys(NOISE, 0)
    for number, trials in enumerate(ROUNDS[1:], 1):
        made |= dict.fromkeys(live, trials)
        live = go_on(progress, live, made, number)
    assert {name: len(of.trials) for name, of in progress.items()} == made
    assert progress["stormy"].stopped == "3 models were better"
    for name in ("still", "wild"):
        [alone] = search_models(split_log, names=(name,), seed=seed)
        pairs = zip(alone.trials, progress[name].trials, strict=False)
        assert all((one.params, one.value) == (other.params, other.value) for one, other in pairs)


@pytest.mark.parametrize(
    ("seconds", "splits"),
    [
        ({"still": 12.0, "calm": 1.0, "windy": 1.0, "stormy": 1.0, "wild": 60.0}, 0.01),
        ({"still": 100.0, "calm": 50.0, "windy": 30.0, "stormy": 20.0, "wild": 60.0}, 6.0),
        ({"still": 500.0, "calm": 400.0, "windy": 300.0, "stormy": 200.0, "wild": 100.0}, 0.3),
    ],
)
def test_a_round_divides_what_is_left_among_the_models_in_the_race(split_log, seconds, splits):
    progress = {of.search.model: of for of in search_models(split_log, seconds, splits)}
    budget = np.clip(splits * sum(seconds.values()), *BUDGET_SECONDS)
    live, made = list(NOISE), dict.fromkeys(NOISE, 1)
    for number, trials in enumerate(ROUNDS[1:], 1):
        left = budget - sum(made[name] * seconds[name] for name in NOISE)
        for name in live:
            begun = 0
            while made[name] < trials and begun * seconds[name] < left / (len(ROUNDS) - number) / len(live):
                begun, made[name] = begun + 1, made[name] + 1
        if trials < ROUNDS[-1]:
            live = go_on(progress, live, made, number)
    assert {name: len(of.trials) for name, of in progress.items()} == made
    assert all("of the budget" in progress[name].stopped for name in live if made[name] < ROUNDS[-1])
    assert all(progress[name].stopped and "budget" not in progress[name].stopped for name in NOISE if name not in live)
    assert all(of.cpu_seconds == made[name] * seconds[name] for name, of in progress.items())


def test_models_are_compared_by_their_gain_over_popularity_on_their_own_items(split_log):
    few, all_items = (search_models(split_log, names=("calm",), edges=800, items=items)[0] for items in (20, None))
    for of in (few, all_items):
        [data] = of.search.load_folds(split_log[0])
        ranks = rank_part_targets(Popularity().fit(data.train), "score", data.parts["validation"])
        ndcg = ranks.of_users["ndcg@100"].mean()
        assert of.baseline == pytest.approx(ndcg) and of.gain == pytest.approx(best_of(of, None) / ndcg)
    assert best_of(few, None) > best_of(all_items, None)


def test_no_trial_begins_after_the_time_and_earlier_ones_are_kept(split_log):
    home, digest = split_log
    search = Search("calm", PROTOCOL, (digest,), ToySettings(noise=0.3), SPACE, 1)
    first, seconds = run_trials(home, search, (), 3, math.inf)
    assert len(first) == 3 and 0 < seconds < 60
    assert run_trials(home, search, first, 12, 0.0)[0] == first
    assert run_trials(home, search, first, 6, math.inf)[0][:3] == first
