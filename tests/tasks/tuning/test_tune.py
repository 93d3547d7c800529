"""Tuning as a stage: its inputs, the value of a trial, and the stored study."""

import dataclasses
import shutil
import tomllib
from typing import ClassVar

import numpy as np
import optuna
import pytest
from pydantic import Field

from oneclass.flows.parameters import BackfillParameters
from oneclass.flows.settings import resolve_settings
from oneclass.models.base import Model
from oneclass.models.fit_options import Epoch
from oneclass.models.registry import MODELS
from oneclass.models.settings import Choice, ModelSettings, NumericRange
from oneclass.tasks import tuning
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.cluster import LOCAL
from oneclass.tasks.errors import InputError
from oneclass.tasks.evaluate.ranking import rank_part_targets
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import split
from oneclass.tasks.stores import checksums, matrices
from oneclass.tasks.stores.home import Home
from oneclass.tasks.tuning import Search, load_validation, record_pending_trial
from oneclass.tasks.tuning.study import Study, _open_storage, format_trials, write_best_settings
from tests.conftest import home_in, log_into
from tests.short_memory import inflate_cost

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


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    monkeypatch.setitem(MODELS, "toy", Toy)
    monkeypatch.setattr(Toy, "seen", [])
    return Toy


@pytest.fixture(scope="module")
def no_studies(tmp_path_factory):
    """A database without a study; making its tables takes longer than the trials here."""
    home = Home(tmp_path_factory.mktemp("studies"), "none")
    Study(home, Search("toy", PROTOCOLS[0], "", ToySettings(), {}))
    url = f"sqlite:///{home.tuning}/study.db"
    optuna.delete_study(study_name=optuna.get_all_study_names(url)[0], storage=url)
    return home.tuning


@pytest.fixture(scope="module")
def split_once(tmp_path_factory, no_studies):
    """(home, digests): 200 users, 60 items with a long tail; the second file is the test part of the given split."""
    home = home_in(tmp_path_factory.mktemp("split"))
    shutil.copytree(no_studies, home.tuning)
    generator = np.random.default_rng(2)
    share = 1 / np.arange(1, 61)
    liked = [generator.choice(60, size=14, replace=False, p=share / share.sum()) for _ in range(200)]
    log_into(home, [(f"u{u}", f"i{i}", 1) for u, items in enumerate(liked) for i in items[:11]])
    log_into(home, [(f"u{u}", f"i{i}", 1) for u, items in enumerate(liked) for i in items[11:]], file_id=2)
    binarize(home, BinarizeSettings(), "run")
    settings = SplitSettings(held_out_share=0.3)
    return home, split(home, settings, "run", protocols=PROTOCOLS, seed=1, given_files=((1,), (2,))).digests


@pytest.fixture
def digests(home, split_once):
    """The test's own copy of the splits."""
    shutil.copytree(split_once[0].root, home.root)
    return split_once[1]


def make_search(digests, protocol="strong_generalization", model="toy", seed=3, **settings):
    kind = MODELS[model].Settings
    return Search(model, protocol, digests[protocol], kind(**settings), kind.search_space, seed)


def run_study(home, what, trials):
    """The outcomes of a study of so many trials, without what a clock says."""
    study, train = Study(home, what), what.validation_data(home).train
    while asked := study.ask(trials, train):
        for one in asked:
            record_pending_trial(home, what, one.number, tuning.submit_trial(LOCAL, home, what, one))
    return [dataclasses.replace(one, seconds=0, checkpoint_seconds=0) for one in study.outcomes()]


def copy_dataset(home, name):
    """The same data set in another home; to be made before there is a study."""
    other = Home(home.root.parent / name, home.dataset, home.limits)
    shutil.copytree(home.matrices, other.matrices)
    shutil.copytree(home.tuning, other.tuning)
    return other


@pytest.mark.parametrize("damage", [b"no database at all", None])
def test_a_damaged_database_of_trials_is_set_aside(home, caplog, damage):
    what = Search("toy", PROTOCOLS[0], "", ToySettings(), {})
    Study(home, what)
    database, aside = home.tuning / "study.db", "study.db.*.unreadable"
    whole = database.read_bytes()
    bad = damage or whole[: len(whole) // 2]  # cut short
    database.write_bytes(bad)
    _open_storage.cache_clear()
    assert Study(home, what).outcomes() == []
    assert [file.read_bytes() for file in home.tuning.glob(aside)] == [bad]
    assert "is damaged (" in caplog.text and "put a copy of it back" in caplog.text
    _open_storage.cache_clear()
    Study(home, what)
    assert len(list(home.tuning.glob(aside))) == 1  # a sound one stays


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_test_part_is_not_read(home, digests, protocol):
    damaged = copy_dataset(home, "damaged")
    files = list((damaged.matrices / digests[protocol]).glob("test_*.npy"))
    assert len(files) >= 4
    for file in files:
        file.write_bytes(b"no array")
    with pytest.raises(checksums.DamagedFile):
        matrices.load_split(damaged, digests[protocol])
    assert run_study(damaged, make_search(digests, protocol), 2) == run_study(home, make_search(digests, protocol), 2)
    assert load_validation(damaged, protocol, digests[protocol], 3).users > 0


def test_parts_are_read_by_name(home, digests):
    whole = matrices.load_split(home, digests["strong_generalization"])
    assert whole.parts.keys() == {"validation", "test"}
    some = matrices.load_split(home, digests["strong_generalization"], parts=("validation",))
    assert some.parts.keys() == {"validation"}
    assert (some.parts["validation"].targets != whole.parts["validation"].targets).nnz == 0
    assert matrices.load_split(home, digests["given"], parts=()).parts == {}


def test_the_validation_part_of_unseen_users_is_the_splits_own(home, digests):
    split_ = matrices.load_split(home, digests["strong_generalization"])
    found = load_validation(home, "strong_generalization", digests["strong_generalization"], 3)
    assert found.metric == "ndcg@100" and found.users == len(split_.parts["validation"].users)
    assert (found.train != split_.train).nnz == 0
    np.testing.assert_array_equal(found.part.users, split_.parts["validation"].users)


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "metric"), [("leave_one_out", "mean_rank"), ("given", "ndcg@20")])
def test_elsewhere_a_validation_part_is_cut_from_the_training_edges(home, digests, protocol, metric):
    train = matrices.load_split(home, digests[protocol]).train
    found = load_validation(home, protocol, digests[protocol], 3)
    degrees = np.diff(train.indptr)
    expected = (degrees >= 2).astype(int) if protocol == "leave_one_out" else degrees // 5
    held_out = np.zeros(len(degrees), dtype=int)
    held_out[found.part.rows] = np.diff(found.part.targets.indptr)
    np.testing.assert_array_equal(held_out, expected)
    put_back = found.train.copy().tolil()
    put_back[found.part.rows] += found.part.targets
    np.testing.assert_array_equal(put_back.toarray(), train.toarray())
    assert found.train.nnz + found.part.targets.nnz == train.nnz
    assert (found.part.histories != found.train[found.part.rows]).nnz == 0 and found.metric == metric


def test_a_log_too_small_to_tune_on_is_reported(home, log_events):
    log_events([("a", "x", 1), ("b", "y", 1)])
    binarize(home, BinarizeSettings(), "run")
    digests = split(home, SplitSettings(), "run", protocols=["leave_one_out"], seed=1).digests
    with pytest.raises(InputError, match="leave_one_out: 0 validation users"):
        load_validation(home, "leave_one_out", digests["leave_one_out"], 0)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_trials_value_is_the_validation_metric_of_its_best_score(home, digests, protocol):
    first = run_study(home, make_search(digests, protocol, noise=0.3), 1)[0]
    assert first.state == "done" and first.score == "score" and first.settings["noise"] == 0.3
    judged = load_validation(home, protocol, digests[protocol], 3)
    model = Toy(Toy.Settings(noise=0.3), seed=3).fit(judged.train)
    better, worse = (rank_part_targets(model, score, judged.part)[0][judged.metric] for score in ("score", "noisier"))
    assert first.value == better.mean() > worse.mean()
    assert first.standard_error == better.std() / np.sqrt(judged.users)


def test_early_stopping_watches_the_validation_users(home, digests, toy):
    run_study(home, make_search(digests), 1)
    part = matrices.load_split(home, digests["strong_generalization"]).parts["validation"]
    watched = toy.seen[0]["validation"]
    histories, targets = watched.histories, watched.targets
    assert (histories != part.histories).nnz == 0 and (targets != part.targets).nnz == 0
    run_study(home, make_search(digests, "given"), 1)
    assert toy.seen[1]["validation"] is None  # its users are in training


@pytest.mark.slow
def test_the_same_seed_makes_the_same_trials_also_after_a_cut(home, digests):
    cut = copy_dataset(home, "cut")
    whole = run_study(home, make_search(digests), 12)
    run_study(cut, make_search(digests), 11)  # ten are drawn at random before the sampler learns from them
    assert run_study(cut, make_search(digests), 12) == whole
    assert run_study(cut, make_search(digests, seed=4), 2)[1].settings != whole[1].settings


@pytest.mark.slow
def test_the_search_begins_at_the_current_settings_and_ends_no_worse(home, digests):
    what = make_search(digests, noise=0.05, epochs=4)  # 4 lies outside the search space
    found = run_study(home, what, 5)
    assert found[0].settings == {"noise": 0.05, "epochs": 4, "kind": "plain"}
    assert all(8 <= one.settings["epochs"] <= 32 for one in found[1:])
    best = Study(home, what).best()
    assert best.value == max(one.value for one in found if one.state == "done") >= found[0].value
    defaults = make_search(digests)
    assert defaults.study == what.study  # where it begins makes no other study
    assert run_study(home, defaults, 6)[5].settings == {"noise": None, "epochs": 16, "kind": "plain"}
    assert run_study(home, what, 7)[6].settings != found[0].settings  # which was tried before


def test_what_would_not_compare_is_another_study(home, digests):
    one = make_search(digests)
    space = {"noise": NumericRange(0.0, 0.5)}
    others = [
        make_search(digests, "leave_one_out"),
        make_search(digests, seed=5),
        dataclasses.replace(one, matrices_digest="another"),
        dataclasses.replace(one, space=space),
        dataclasses.replace(one, space=space, start=ToySettings(epochs=9)),
    ]
    assert len({one.study, *(other.study for other in others)}) == 6


@pytest.mark.slow
def test_fits_that_fall_behind_are_stopped_and_those_that_fail_are_passed_over(home, digests, toy):
    found = run_study(home, make_search(digests, noise=0.2), 20)
    states = {state: [one for one in found if one.state == state] for state in ("done", "pruned", "failed")}
    assert all(states.values())
    best = max(one.value for one in states["done"])
    assert all(one.value < best and "stopped at" in one.note for one in states["pruned"])
    noises = [one.settings["noise"] for one in states["done"]]
    assert np.median([one.settings["noise"] for one in states["pruned"]]) > np.median(noises)
    reasons = {one.note for one in states["failed"]}
    assert all("noise: too high for this kind" in reason or "a score is NaN" in reason for reason in reasons)
    fits = iter(toy.seen)  # a refused fit leaves no trace there
    for one in found:
        if "too high" not in one.note:
            epochs, reached = one.settings["epochs"], next(fits)["epochs"]
            shares = {"12": 1 / 8, "25": 1 / 4, "50": 1 / 2}
            if one.state == "pruned":
                assert reached == np.ceil(epochs * shares[one.note.split()[-2]])
            elif one.state == "done":
                assert reached == epochs


def test_a_trial_that_needs_more_memory_than_there_is_fails_before_it_begins(home, digests, toy, monkeypatch):
    inflate_cost(monkeypatch, toy)
    [outcome] = run_study(home, make_search(digests), 1)
    assert outcome.state == "failed" and "toy: needs about" in outcome.note and not toy.seen


def test_the_file_holds_the_best_settings_and_how_they_were_found(home, digests, tmp_path):
    what = make_search(digests, noise=0.9)
    assert write_best_settings(home, what, Study(home, what), set(), 7, "the command") is None
    found = run_study(home, what, 4)
    study = Study(home, what)
    path = write_best_settings(home, what, study, set(), 7, "the command")
    assert path == home.tuning / "toy.toml" and not list(home.tuning.glob("*.partial"))
    text, best = path.read_text(), study.best()
    assert tomllib.loads(text) == {"toy": best.settings}
    assert f"ndcg@100 {best.value:.4f} ± {best.standard_error:.4f}" in text and "#     the command\n" in text
    assert "4 trials" in text and f"had {found[0].value:.4f}" in text and "7 users" in text
    run = resolve_settings(BackfillParameters(dataset="demo", home=str(tmp_path), models=["toy"], config=[str(path)]))
    assert run.models["toy"].model_dump() == best.settings
    lines = format_trials(what, found).splitlines()
    assert lines[3].split()[0] == str(best.number) and "4 trials" in lines[0]


def test_settings_outside_the_space_are_written_where_the_command_names_them(home, digests):
    what = dataclasses.replace(make_search(digests, noise=0.1, epochs=9), space={"noise": NumericRange(0.0, 1.0)})
    run_study(home, what, 1)
    for fixed, expected in ((set(), {"noise": 0.1}), ({"epochs"}, {"noise": 0.1, "epochs": 9})):
        assert (
            tomllib.loads(write_best_settings(home, what, Study(home, what), fixed, 1, "").read_text())["toy"]
            == expected
        )
