"""Rounds of trials: suggestions by any executor, their order, and the end of a round."""

import functools

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import TrialState, create_trial
from scipy.sparse import csr_matrix

from oneclass.models.settings import Choice, ModelSettings, NumericRange
from oneclass.tasks.tuning.sampler import median_values
from oneclass.tasks.tuning.search import Search, TrialOutcome, TrialResult
from oneclass.tasks.tuning.study import Study

LOG = csr_matrix(np.ones((2, 2)))  # on which nothing is fitted here
STEPS = (12, 25, 50)
STATES = {"done": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}


class TwoSettings(ModelSettings):
    """A number, best at .3, and a kind."""

    x: float = 0.5
    kind: str = "round"


class LeftToTheLog(TwoSettings):
    """The number follows from the log where it is not given."""

    x: float | None = None

    def resolve(self, interactions):
        return self.model_copy(update={"x": interactions.shape[0] / 8}) if self.x is None else self


@pytest.fixture(autouse=True)
def no_model(monkeypatch):
    """Studies in memory, of a model that is not fitted."""
    monkeypatch.setattr(Search, "source", "its source")
    storage = functools.cache(lambda home: optuna.storages.InMemoryStorage())
    monkeypatch.setattr("oneclass.tasks.tuning.study._open_storage", storage)


def make_search(batch_size, start=None):
    space = {"x": NumericRange(0.0, 1.0), "kind": Choice(("round", "square"))}
    return Search("two", "strong_generalization", "digest", start or TwoSettings(), space, 3, batch_size=batch_size)


def trial_value(tried, step=100):
    """What a trial reaches after so many percent of its epochs."""
    return (0.5 + step / 200) * (1 - (tried["x"] - 0.3) ** 2 - 0.1 * (tried["kind"] == "square"))


def make_trials(asked, start=None):
    tried = {**(start or TwoSettings()).model_dump(), **asked.values}
    checkpoints, end = {}, {"state": "done", "value": trial_value(tried)}
    for step in STEPS:
        checkpoints[step] = trial_value(tried, step)
        if max(checkpoints.values()) < asked.medians.get(step, -np.inf):
            end = {"state": "pruned", "value": checkpoints[step]}
            break
    if tried["x"] > 0.9:
        end = {"state": "failed"}
    return TrialResult(asked, TrialOutcome(asked.number, settings=tried, values=asked.values, **end), checkpoints)


def run_search(home, of, trials, order=1, killed_at=None):
    """The outcomes; a killed process has recorded the trials before that one."""
    study = Study(home, of)
    while asked := study.ask(trials, LOG):
        round_ = [make_trials(one, of.start) for one in asked[::order]]
        for one in round_[::order]:
            if one.trial.number == killed_at:
                return study.outcomes()
            study.record_trial(one)
    return study.outcomes()


def test_neither_the_order_in_which_a_round_is_made_nor_a_cut_changes_a_trial():
    whole = run_search("one", make_search(3), 24)
    assert [one.number for one in whole] == list(range(1, 25))
    assert {one.state for one in whole} == {"done", "pruned", "failed"}
    assert run_search("another", make_search(3), 24, order=-1) == whole
    for killed_at in (2, 15):
        home = f"killed at {killed_at}"
        assert run_search(home, make_search(3), 24, killed_at=killed_at) == whole[: killed_at - 1]
        assert run_search(home, make_search(3), 24) == whole
    assert run_search("further", make_search(3), 17) == whole[:17]  # which ends within a round
    assert run_search("further", make_search(3), 24) == whole


def test_how_many_are_asked_together_decides_which_trials_are_made():
    alone, together = run_search("home", make_search(1), 30), run_search("home", make_search(3), 30)
    tried = [[one.settings for one in found] for found in (alone, together)]
    assert tried[0][:10] == tried[1][:10]  # drawn before the sampler learns
    assert tried[0][10:] != tried[1][10:]
    assert len({make_search(count).study for count in (1, 2, 3)}) == 3


def test_a_trial_knows_nothing_of_its_own_round():
    run_search("home", make_search(4), 12)
    study = Study("home", make_search(4))
    asked = study.ask(16, LOG)
    best = TrialOutcome(13, "done", {}, value=99.0, values=asked[0].values)
    study.record_trial(TrialResult(asked[0], best, dict.fromkeys(STEPS, 99.0)))
    assert study.ask(16, LOG) == asked[1:] and study.ask(14, LOG) == asked[1:2]
    for one in asked[1:]:
        study.record_trial(make_trials(one))
    assert study.ask(16, LOG) == []
    assert {one.number: one.medians != asked[0].medians for one in study.ask(18, LOG)} == {17: True, 18: True}


def test_other_settings_to_begin_at_are_tried_once_also_within_a_round():
    run_search("home", make_search(3), 4)
    found = run_search("home", make_search(3, TwoSettings(x=0.25)), 9)
    assert [one.settings["x"] == 0.25 for one in found] == [False] * 4 + [True] + [False] * 4


def test_the_first_trial_lies_where_the_rule_puts_what_is_left_to_the_log(home):
    for start, x in ((LeftToTheLog(), 0.25), (LeftToTheLog(x=0.75), 0.75)):
        (first,) = Study(home, make_search(1, start)).ask(1, LOG)
        assert first.params["x"] == x and first.values == {}


def test_one_after_the_other_the_trials_are_those_that_optuna_asks_for_and_prunes():
    of, study = make_search(1), optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner(5))
    space = {"x": FloatDistribution(0, 1), "kind": CategoricalDistribution(("round", "square"))}
    study.enqueue_trial(TwoSettings().model_dump())
    found = run_search("home", of, 40)
    assert len({one.state for one in found}) == 3
    for one in found:
        seed = int(np.random.SeedSequence([of.seed, one.number - 1]).generate_state(1)[0])
        study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=10, multivariate=False)
        trial, pruned = study.ask(space), False
        assert trial.params == one.settings
        for step in STEPS:
            trial.report(trial_value(one.settings, step), step)
            if pruned := trial.should_prune():
                break
        assert one.state == "failed" or pruned == (one.state == "pruned")
        study.tell(trial, one.value if one.state == "done" else None, state=STATES[one.state])


@pytest.mark.parametrize("seed", range(3))
def test_the_medians_are_those_that_optuna_prunes_by(seed):
    draws = np.random.default_rng(seed)
    trials = [
        create_trial(
            state=(TrialState.COMPLETE, TrialState.COMPLETE, TrialState.PRUNED)[draws.integers(3)],
            value=1.0,
            intermediate_values={step: draws.normal() for step in STEPS[: draws.integers(1, 4)]},
        )
        for _ in range(16)
    ]
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner(5))
    study.add_trials(trials)
    found = median_values(trials)
    assert found.keys() == set(STEPS) and median_values(trials[:4]) == {}
    for step, median in found.items():
        for reached in (median, np.nextafter(median, -np.inf)):
            trial = study.ask()
            trial.report(reached, step)
            assert trial.should_prune() == (reached < median)
