"""Small logs: users are divided into folds, and everything is judged on the users of all, as in a plain recount."""

import math
import shutil

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.blend import BlendSettings
from oneclass.models.registry import MODELS
from oneclass.tasks.evaluate.ranking import rank_part_targets
from oneclass.tasks.evaluate.stage import evaluate
from oneclass.tasks.protocols import choose_publish_protocol, list_splits
from oneclass.tasks.publish import promotion
from oneclass.tasks.publish.choice import ChosenModel, choose_model
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.stores import fits, matrices
from oneclass.tasks.tuning.search import Search, run_trial
from tests.conftest import FOLD_BOUND, home_in, log_into, query_rows, set_fold_bound
from tests.models.evaluation.test_metrics import compute_naively
from tests.tasks.conftest import copy_of, fit_models, md5_number, split_likes, train_model

SEED = 3
PROTOCOL = "strong_generalization"
SETTINGS = {name: MODELS[name].Settings() for name in ("popularity", "mrf_dense", "wmf")}
SETTINGS["wmf"] = MODELS["wmf"].Settings(factors=8)

pytestmark = pytest.mark.usefixtures("folds")


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """A home with likes of 150 users of two tastes, and these by user; each has an item that one or two users have."""
    generator = np.random.default_rng(1)
    likes = {}
    for user in range(150):
        popular = (user % 2 * 30 + generator.zipf(1.3, 12) % 30).tolist()
        likes[f"u{user}"] = {f"i{item}" for item in popular} | {f"rare{user // 2}"}
    home = home_in(tmp_path_factory.mktemp("logged"))
    log_into(home, [(user, item, 1) for user, items in likes.items() for item in sorted(items)])
    return home, likes


likes = copy_of("logged")


@pytest.fixture(scope="module")
def evaluated_once(logged, tmp_path_factory):
    """(home after an evaluation on folds, (the folds with their fits, the metrics by model and user, recounted))."""
    home = home_in(tmp_path_factory.mktemp("evaluated"))
    shutil.copytree(logged[0].root, home.root)
    set_fold_bound(FOLD_BOUND)
    digests = split_log(home)
    names = list_splits(PROTOCOL, digests)
    folds = [fit_models(home, digests[name], SETTINGS, protocol=name, seed=SEED) for name in names]
    judged, expected = evaluate(home, "run", PROTOCOL, folds), recount_metrics(logged[1], SETTINGS)
    set_fold_bound(0)
    assert judged.users == len(expected["wmf"]) > 120 and not judged.failed
    return home, (folds, expected)


evaluated = copy_of("evaluated_once")


def split_log(home, **settings):
    return split_likes(home, PROTOCOL, seed=SEED, **settings)


def recount_metrics(likes, settings):
    """The metrics of each user by model, in plain Python but for the fits: the users of one fold after another."""
    of_fold = {user: int(md5_number(f"{SEED}:part:{user}") % 1000000007 / 1000000007 * 5) for user in likes}
    found = {model: {} for model in settings}
    for fold in range(5):
        others = [user for user in likes if of_fold[user] != fold]
        items = list(dict.fromkeys(item for user in others for item in sorted(likes[user])))  # by first appearance
        rows = np.array([[item in likes[user] for item in items] for user in others])
        for model, of_model in settings.items():
            fit = MODELS[model](of_model, seed=SEED, threads=1).fit(csr_matrix(rows, dtype=np.float32))
            for user in (user for user in likes if of_fold[user] == fold):
                known = [item for item in items if item in likes[user]]
                drawn = sorted(known, key=lambda item: md5_number(f"{SEED}:target:{user}:{item}"))[: len(known) // 5]
                if drawn:
                    targets, own = (np.isin(items, some) for some in (drawn, known))
                    history = own & ~targets
                    [scores] = fit.scores(csr_matrix(history[None], dtype=np.float32))
                    found[model][user] = of_user = compute_naively(scores, history, targets)
                    of_user["mean_rank_known_items"] = of_user["mean_rank_midtie"]  # a fold's items are its training's
    return found


def mean_and_error(values):
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / len(values) / len(values))


def test_a_small_log_judged_by_folds_equals_a_recount(evaluated_once):
    home, (_, expected) = evaluated_once
    table = query_rows(home, "select model, metric, value, standard_error, users from evaluation.metrics")
    found = {(model, metric): row for model, metric, *row in table}
    for model, of_users in expected.items():
        for metric in next(iter(of_users.values())).keys() & {name for _, name in found}:
            values = [of_user[metric] for of_user in of_users.values()]
            assert found[model, metric] == [*map(pytest.approx, mean_and_error(values)), len(values)], (model, metric)
        assert found[model, "validation_ndcg@100"] == found[model, "ndcg@100"]
    for metric, one, other, difference, error, users in query_rows(
        home, "select metric, model, other_model, difference, standard_error, users from evaluation.comparisons"
    ):
        name = metric.removeprefix("validation_")
        pairs = [expected[one][user][name] - expected[other][user][name] for user in expected[one]]
        mean, plain_error = mean_and_error(pairs)
        assert difference == pytest.approx(mean, abs=1e-12) and users == len(pairs)
        overlapping = 1 + 5 / 4  # over the variance of independent folds: a fold's test users over its training users
        assert error == pytest.approx(plain_error * math.sqrt(overlapping * users / (users - 1)), abs=1e-12)


def test_folds_are_for_logs_below_the_bound(home, likes):
    held_out = split_log(home, min_validation_users=0)
    part = matrices.load_split(home, held_out[PROTOCOL]).parts["validation"]
    users = int(np.count_nonzero(np.diff(part.targets.indptr)))
    assert 0 < users < SplitSettings().min_validation_users
    assert split_log(home, min_validation_users=users) == held_out
    assert len(list_splits(PROTOCOL, split_log(home, min_validation_users=users + 1))) == 5


def test_a_trial_is_evaluated_by_the_users_of_all_folds(home, evaluated):
    folds, expected = evaluated
    of = SETTINGS["wmf"]
    search = Search("wmf", PROTOCOL, tuple(digest for digest, _ in folds), of, of.search_space, SEED)
    trial = run_trial(home, search, [])
    values = [of_user["ndcg@100"] for of_user in expected["wmf"].values()]
    assert (trial.value, trial.user_attrs["standard_error"]) == tuple(map(pytest.approx, mean_and_error(values)))
    assert search.count_users(home) == len(values)


def test_the_choice_and_the_comparison_are_over_all_folds(home, evaluated):
    folds, expected = evaluated
    assert choose_publish_protocol("auto", split_log(home)) == PROTOCOL
    choice = choose_model(home, "run", PublishSettings(), list(SETTINGS), PROTOCOL, folds=5)
    users = len(expected["wmf"])
    assert f"for {users} validation users in 5 folds" in choice.reason
    night = promotion.Night(home, SETTINGS, folds, SEED)
    challenger = promotion.assess_challenger(night, choice, PublishSettings()).challenger
    mean, error = mean_and_error([of_user["ndcg@100"] for of_user in expected[choice.model].values()])
    assert (challenger.value, challenger.standard_error) == (pytest.approx(mean), pytest.approx(error))
    assert challenger.validation_users == users


@pytest.mark.slow
def test_blends_of_two_nights_are_compared_by_the_weights_that_each_was_published_with(home, evaluated, monkeypatch):
    """On a fold tonight's blend has weights of other folds, and last night's those of all: it would win by that."""
    folds, _ = evaluated

    def weigh(weight):
        one, other = ({"model": name, "settings": SETTINGS[name].model_dump(mode="json")} for name in [*SETTINGS][:2])
        return BlendSettings(components=[{**one, "weight": weight}, other])

    def fit_on_folds(settings):
        splits = [matrices.load_split(home, digest) for digest, _ in folds]
        return splits, [
            train_model(home, digest, "blend", settings, protocol=of.protocol, seed=SEED).digest
            for of, (digest, _) in zip(splits, folds, strict=True)
        ]

    def rank(settings):
        ranked = [
            rank_part_targets(fits.load_fit(home, "blend", fit), "score", of.parts["validation"])
            for of, fit in zip(*fit_on_folds(settings), strict=True)
        ]
        return np.concatenate([of.of_users["ndcg@100"] for of in ranked])

    tonight, before, of_others = weigh(1.0), weigh(0.25), weigh(0.01)
    of_folds = zip(folds, fit_on_folds(of_others)[1], strict=True)
    judged = [(digest, {**of_fold, "blend": fit}) for (digest, of_fold), fit in of_folds]
    champion = promotion.Candidate("blend", "score", before.model_dump(mode="json"), edges=1, users=1)
    monkeypatch.setattr(promotion, "load_champion", lambda home: champion)
    night = promotion.Night(home, SETTINGS | {"blend": tonight}, judged, SEED, protocol=PROTOCOL)
    found = promotion.assess_challenger(night, ChosenModel("blend", "score"), PublishSettings())
    assert found.difference == pytest.approx((rank(tonight) - rank(before)).mean(), abs=1e-12)
    assert found.challenger.value == pytest.approx(rank(of_others).mean(), abs=1e-12)
    assert abs(found.difference) > 1e-6 and found.challenger.value != pytest.approx(rank(tonight).mean(), abs=1e-6)
