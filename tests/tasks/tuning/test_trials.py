"""Trials and studies: what is suggested, how a trial ends, what is stored, and the validation part that judges it."""

import dataclasses
import shutil
from typing import ClassVar

import numpy as np
import optuna
import pytest
from pydantic import Field

from oneclass.models.base import Model
from oneclass.models.fit_options import Epoch
from oneclass.models.registry import MODELS
from oneclass.models.settings import Choice, ModelSettings, NumericRange
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.evaluate.ranking import rank_part_targets
from oneclass.tasks.stores import checksums, matrices
from oneclass.tasks.stores.home import Home
from oneclass.tasks.tuning.search import Search, choose_space, run_trial, suggest_trial
from oneclass.tasks.tuning.study import open_study
from oneclass.tasks.tuning.validation import load_validation
from tests.conftest import home_in, log_into
from tests.processes import inflate_cost
from tests.tasks.conftest import copy_of, split_likes

PROTOCOLS = ("strong_generalization", "leave_one_out", "given")


class ToySettings(ModelSettings):
    """Popularity, mixed with noise."""

    search_space: ClassVar = {
        "noise": NumericRange(0.0, 1.0),
        "epochs": NumericRange(8, 32),
        "kind": Choice(("plain", "odd")),
    }

    noise: float | None = Field(None, description="Share of noise in the scores, none where it is not set.")
    epochs: int = Field(16, description="Passes that do nothing.")
    kind: str = Field("plain", description="`odd` is refused where the noise is high.")


class Toy(Model):
    """Popularity with noise, which knows its scores at once; of the second score the noise is doubled."""

    name = "toy"
    Settings = ToySettings
    score_names = ("noisier", "score")
    is_iterative = True
    seen: ClassVar[list] = []  # what each fit was given

    def _fit(self, interactions, options):
        if self.settings.kind == "odd" and (self.settings.noise or 0) > 0.8:
            raise ValueError("noise: too high\nfor this kind")
        self.draws = np.random.default_rng(self.seed).random(interactions.shape[1])
        self.seen.append({"edges": interactions.nnz, "validation": options.validation, "epochs": 0})
        for number in range(1, self.settings.epochs + 1):
            self.seen[-1]["epochs"] = number
            options.on_epoch(Epoch(number, self.settings.epochs, 0.0))

    def _scores(self, histories, users, score):
        noise = (self.settings.noise or 0) * (2 if score == "noisier" else 1)
        if 0.35 < noise < 0.4:
            noise = np.nan
        scores = (1 - noise) * self.item_degrees / self.item_degrees.max() + noise * self.draws
        return np.tile(scores.astype(np.float32), (histories.shape[0], 1))


def split_toy_log(home, protocols=PROTOCOLS):
    """Split a log of 200 users and 60 items with a long tail; the second file is the test part of the given split."""
    generator = np.random.default_rng(2)
    share = 1 / np.arange(1, 61)
    liked = [generator.choice(60, size=14, replace=False, p=share / share.sum()) for _ in range(200)]
    log_into(home, [(f"u{u}", f"i{i}", 1) for u, items in enumerate(liked) for i in items[:11]])
    log_into(home, [(f"u{u}", f"i{i}", 1) for u, items in enumerate(liked) for i in items[11:]], file_id=2)
    return split_likes(home, *protocols, plan={"given_files": ((1,), (2,))}, held_out_share=0.3)


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    monkeypatch.setitem(MODELS, "toy", Toy)
    monkeypatch.setattr(Toy, "seen", [])
    return Toy


@pytest.fixture(scope="module")
def split_once(tmp_path_factory):
    home = home_in(tmp_path_factory.mktemp("split"))
    return home, split_toy_log(home)


digests = copy_of("split_once")


def make_search(digests, protocol="strong_generalization", seed=3, **settings):
    start = ToySettings(**settings)
    return Search("toy", protocol, (digests[protocol],), start, start.search_space, seed)


def run_trials(home, search, trials, ended=()):
    ended = list(ended)
    while len(ended) < trials:
        ended.append(run_trial(home, search, ended))
    return ended


def repeatable(trials):
    attributes = [{name: of for name, of in trial.user_attrs.items() if name != "seconds"} for trial in trials]
    return [(of, trial.state, trial.value, trial.params) for of, trial in zip(attributes, trials, strict=True)]


def settings_of(trials):
    return [trial.user_attrs["settings"] for trial in trials]


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


def test_one_after_the_other_the_trials_are_those_that_optuna_suggests(home, digests):
    search, train = make_search(digests, noise=0.2), load_validation(home, digests[PROTOCOLS[0]], 3).train
    found = run_trials(home, search, 20)
    assert {"COMPLETE", "FAIL"} == {trial.state.name for trial in found}
    study = optuna.create_study(direction="maximize")
    study.enqueue_trial({"noise": 0.2, "epochs": 16, "kind": "plain"})
    for number, one in enumerate(found):
        seed = int(np.random.SeedSequence([search.seed, number]).generate_state(1)[0])
        study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=4, multivariate=True)
        trial = study.ask(suggest_trial(search, [], train).distributions)
        assert trial.params == one.params
        study.tell(trial, one.value if one.state.name == "COMPLETE" else None, state=one.state)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_trials_value_is_the_validation_metric_of_its_best_score(home, digests, toy, protocol):
    [first] = run_trials(home, make_search(digests, protocol, noise=0.3), 1)
    assert first.user_attrs["score"] == "score" and first.user_attrs["settings"]["noise"] == 0.3
    judged = load_validation(home, digests[protocol], 3)
    model = Toy(Toy.Settings(noise=0.3), seed=3).fit(judged.train)
    metric = make_search(digests, protocol).metric
    part = judged.parts["validation"]
    better, worse = (rank_part_targets(model, score, part)[0][metric] for score in ("score", "noisier"))
    assert first.value == better.mean() > worse.mean()
    assert first.user_attrs["standard_error"] == better.std() / np.sqrt(len(better))
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
    others = [
        make_search(digests, "leave_one_out"),
        make_search(digests, seed=5),
        make_search(digests, noise=0.1),
        dataclasses.replace(one, digests=("another",)),
        dataclasses.replace(one, space={"noise": NumericRange(0.0, 0.5)}),
    ]
    assert len({open_study(home, search).study_name for search in [one, *others]}) == 6
    assert open_study(home, make_search(digests)).study_name == open_study(home, one).study_name


def test_a_damaged_database_of_trials_is_reported(home):
    search = Search("toy", PROTOCOLS[0], (), ToySettings(), {})
    open_study(home, search)
    database = home.tuning / "study.db"
    database.write_bytes(database.read_bytes()[: database.stat().st_size // 2])  # cut short
    with pytest.raises(OneclassError, match=r"study\.db: is damaged \(.*Put a copy of it back"):
        open_study(home, search)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_test_part_is_not_read(split_once, tmp_path, protocol):
    home, digests = split_once
    damaged = Home(tmp_path, home.dataset, home.limits)
    shutil.copytree(home.matrices, damaged.matrices)
    for file in (damaged.matrices / digests[protocol]).glob("test_*.npy"):
        file.write_bytes(b"no array")
    with pytest.raises(checksums.DamagedFile):
        matrices.load_split(damaged, digests[protocol])
    found, expected = (load_validation(of, digests[protocol], 3) for of in (damaged, home))
    assert (found.train != expected.train).nnz == 0 and expected.parts["validation"].targets.nnz > 0
    assert (found.parts["validation"].targets != expected.parts["validation"].targets).nnz == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_validation_part_is_that_of_unseen_users_or_cut_from_the_training_edges(split_once, protocol):
    home, digests = split_once
    split = matrices.load_split(home, digests[protocol])
    train, found = split.train, load_validation(home, digests[protocol], 3)
    part = found.parts["validation"]
    if protocol == "strong_generalization":
        users = split.parts["validation"].users
        assert len(users) > 0 and (found.train != train).nnz == 0
        np.testing.assert_array_equal(part.users, users)
        return
    degrees = np.diff(train.indptr)
    expected = (degrees >= 2).astype(int) if protocol == "leave_one_out" else degrees // 5
    held_out = np.zeros(len(degrees), dtype=int)
    held_out[part.rows] = np.diff(part.targets.indptr)
    np.testing.assert_array_equal(held_out, expected)
    put_back = found.train.copy().tolil()
    put_back[part.rows] += part.targets
    np.testing.assert_array_equal(put_back.toarray(), train.toarray())
    assert found.train.nnz + part.targets.nnz == train.nnz
    assert (part.histories != found.train[part.rows]).nnz == 0


def test_the_weight_of_explicit_negatives_is_searched_where_a_split_keeps_them(home):
    log_into(home, [(user, (user + item) % 40, 1 + 4 * (item % 2)) for user in range(100) for item in range(12)])
    likes = BinarizeSettings(threshold=4, explicit_negatives=True)
    digests = split_likes(home, "strong_generalization", likes=likes, held_out_share=0.3)
    split = matrices.load_split(home, digests["strong_generalization"])
    fitted = load_validation(home, digests["strong_generalization"], 3).explicit_negatives
    assert fitted.nnz > 0 and (fitted != split.explicit_negatives).nnz == 0
    without = dataclasses.replace(split, explicit_negatives=None)
    space, smaller = (choose_space(MODELS["wmf"].Settings(), of) for of in (split, without))
    assert space.keys() - smaller.keys() == {"explicit_negative_weight"}


@pytest.mark.parametrize("protocol", ["strong_generalization", "leave_one_out"])
def test_a_sample_has_some_users_with_all_of_their_edges_and_the_items_that_they_have(split_once, protocol):
    home, digests = split_once
    whole, some = (load_validation(home, digests[protocol], 1, edges) for edges in (None, 500))
    part = some.parts["validation"]
    assert 400 < some.train.nnz < 600 and some.train.shape[1] <= whole.train.shape[1]
    assert np.bincount(some.train.indices, minlength=some.train.shape[1]).min() >= 1
    assert part.histories.shape == part.targets.shape and part.targets.shape[1] == some.train.shape[1]
    assert set(np.diff(some.train.indptr)) <= set(np.diff(whole.train.indptr))
    if protocol == "leave_one_out":  # the users who judge are those who train
        assert part.rows.max() < some.train.shape[0]
        assert (part.histories != some.train[part.rows]).nnz == 0
        assert (np.diff(part.targets.indptr) == 1).all()
    else:
        assert part.rows is None
