"""Trials and studies: what is suggested, how a trial ends, and what is stored."""

import dataclasses
import shutil

import numpy as np
import optuna
import pytest

from oneclass.models.registry import MODELS
from oneclass.models.settings import NumericRange
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.evaluate.ranking import rank_part_targets
from oneclass.tasks.stores import matrices
from oneclass.tasks.tuning.search import Search, suggest_trial
from oneclass.tasks.tuning.study import open_study
from oneclass.tasks.tuning.trial import run_trial
from oneclass.tasks.tuning.validation import load_validation
from tests.conftest import home_in
from tests.short_memory import inflate_cost
from tests.tasks.tuning.toy import PROTOCOLS, Toy, ToySettings, split_toy_log


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    monkeypatch.setitem(MODELS, "toy", Toy)
    monkeypatch.setattr(Toy, "seen", [])
    return Toy


@pytest.fixture(scope="module")
def split_once(tmp_path_factory):
    home = home_in(tmp_path_factory.mktemp("split"))
    return home, split_toy_log(home)


@pytest.fixture
def digests(home, split_once):
    """The test's own copy of the splits."""
    shutil.copytree(split_once[0].root, home.root)
    return split_once[1]


def make_search(digests, protocol="strong_generalization", seed=3, **settings):
    start = ToySettings(**settings)
    return Search("toy", protocol, (digests[protocol],), start, start.search_space, seed)


def run_trials(home, search, trials, ended=()):
    """A search's trials, those that ended before included."""
    ended, train = list(ended), search.load_folds(home)[0].train
    while len(ended) < trials:
        ended.append(run_trial(home, search, suggest_trial(search, ended, train)))
    return ended


def repeatable(trials):
    """What a repetition repeats of trials."""
    attributes = [{name: of for name, of in trial.user_attrs.items() if name != "seconds"} for trial in trials]
    return [(of, trial.state, trial.value, trial.params) for of, trial in zip(attributes, trials, strict=True)]


def settings_of(trials):
    return [trial.user_attrs["settings"] for trial in trials]


def states_of(trials):
    return [trial.state.name for trial in trials]


def test_a_cut_changes_no_trial(home, digests):
    search = make_search(digests)
    whole = run_trials(home, search, 14)
    assert len({str(settings) for settings in settings_of(whole)}) == 14
    assert repeatable(run_trials(home, search, 14)) == repeatable(whole)
    for cut in (2, 10):
        study = open_study(home, dataclasses.replace(search, seed=search.seed))
        study.add_trials(run_trials(home, search, cut)[len(study.trials) :])
        assert repeatable(run_trials(home, search, 14, study.trials)) == repeatable(whole)
    other = make_search(digests, seed=4)
    assert settings_of(run_trials(home, other, 2))[1] != settings_of(whole)[1]


def test_the_search_begins_at_the_current_settings_and_goes_on_to_those_of_other_data_sets(home, digests, monkeypatch):
    monkeypatch.setattr(ToySettings, "initial_trials", ({"noise": 0.2, "epochs": 9}, {"kind": "odd"}, {"other": 1}))
    search = make_search(digests, noise=0.05, epochs=4)  # 4 lies outside the search space
    found = settings_of(run_trials(home, search, 5))
    assert found[0] == {"noise": 0.05, "epochs": 4, "kind": "plain"}
    assert found[1:3] == [{"noise": 0.2, "epochs": 9, "kind": "plain"}, {"noise": 0.05, "epochs": 8, "kind": "odd"}]
    assert all(8 <= settings["epochs"] <= 32 for settings in found[1:])


def test_one_after_the_other_the_trials_are_those_that_optuna_suggests_and_prunes(home, digests):
    search, train = make_search(digests, noise=0.2), load_validation(home, PROTOCOLS[0], digests[PROTOCOLS[0]], 3).train
    found = run_trials(home, search, 20)
    assert {"COMPLETE", "PRUNED", "FAIL"} == set(states_of(found))
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner(n_startup_trials=5))
    study.enqueue_trial({"noise": 0.2, "epochs": 16, "kind": "plain"})
    for number, one in enumerate(found):
        seed = int(np.random.SeedSequence([search.seed, number]).generate_state(1)[0])
        study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=4, multivariate=True)
        trial, pruned = study.ask(suggest_trial(search, [], train).distributions), False
        assert trial.params == one.params
        for step, value in one.intermediate_values.items():
            trial.report(value, step)
            pruned = trial.should_prune()
        assert one.state.name == "FAIL" or pruned == (one.state.name == "PRUNED")
        study.tell(trial, one.value if one.state.name == "COMPLETE" else None, state=one.state)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_trials_value_is_the_validation_metric_of_its_best_score(home, digests, toy, protocol):
    [first] = run_trials(home, make_search(digests, protocol, noise=0.3), 1)
    assert first.user_attrs["score"] == "score" and first.user_attrs["settings"]["noise"] == 0.3
    judged = load_validation(home, protocol, digests[protocol], 3)
    model = Toy(Toy.Settings(noise=0.3), seed=3).fit(judged.train)
    better, worse = (rank_part_targets(model, score, judged.part)[0][judged.metric] for score in ("score", "noisier"))
    assert first.value == better.mean() > worse.mean()
    assert first.user_attrs["standard_error"] == better.std() / np.sqrt(judged.users)
    watched = toy.seen[0]["validation"]
    if protocol == "strong_generalization":  # early stopping watches the validation users
        part = matrices.load_split(home, digests[protocol]).parts["validation"]
        assert (watched.histories != part.histories).nnz == 0 and (watched.targets != part.targets).nnz == 0
    else:  # whose users are in training
        assert watched is None


def test_a_trial_that_needs_more_memory_than_there_is_fails_before_it_begins(home, digests, toy, monkeypatch):
    inflate_cost(monkeypatch, toy)
    [trial] = run_trials(home, make_search(digests), 1)
    assert trial.state.name == "FAIL" and "toy: needs about" in trial.user_attrs["note"] and not toy.seen


def test_what_would_not_compare_is_another_study(home, digests):
    one = make_search(digests)
    space = {"noise": NumericRange(0.0, 0.5)}
    others = [
        make_search(digests, "leave_one_out"),
        make_search(digests, seed=5),
        make_search(digests, noise=0.1),
        dataclasses.replace(one, digests=("another",)),
        dataclasses.replace(one, space=space),
        dataclasses.replace(one, space=space, start=ToySettings(epochs=9)),
    ]
    assert len({open_study(home, search).study_name for search in [one, *others]}) == 7
    assert open_study(home, make_search(digests)).study_name == open_study(home, one).study_name


@pytest.mark.parametrize("damage", [b"no database at all", None])
def test_a_damaged_database_of_trials_is_reported(home, damage):
    search = Search("toy", PROTOCOLS[0], (), ToySettings(), {})
    open_study(home, search)
    database = home.tuning / "study.db"
    whole = database.read_bytes()
    database.write_bytes(damage or whole[: len(whole) // 2])  # cut short
    with pytest.raises(OneclassError, match=r"study\.db: is damaged \(.*Put a copy of it back"):
        open_study(home, search)
