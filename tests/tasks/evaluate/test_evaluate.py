"""The evaluate stage with small fitted models, what it takes from an earlier run, and considered pairs one by one."""

from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models import memory_estimates, registry
from oneclass.models.base import Model
from oneclass.models.evaluation.calibration import evaluate_probabilities, smoothed_like_rates
from oneclass.models.evaluation.ranking import CannotRank
from oneclass.models.negatives.distributions import AllZeros
from oneclass.models.popularity import Popularity
from oneclass.models.random_graph.model import RandomGraph, RandomGraphSettings
from oneclass.models.registry import MODELS
from oneclass.models.settings import ModelSettings
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.evaluate import calibration, jobs
from oneclass.tasks.evaluate.stage import evaluate
from oneclass.tasks.evaluate.tables import LEAVE_ONE_OUT_TABLES, PROTOCOL_TABLES
from oneclass.tasks.stores import fits, matrices
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import Part, SplitMatrices
from tests.conftest import execute_statement, query_rows
from tests.tasks.conftest import copy_of, train_model

USERS, ITEMS = 40, 30


class Opinion(Model):
    """Gives every item its own id as its score; `reversed` turns that round."""

    name = "opinion"
    Settings = ModelSettings
    score_names = ("score", "reversed")

    def _fit(self, interactions, options):
        self.opinions = np.arange(interactions.shape[1], dtype=np.float32)

    def _scores(self, histories, users, score):
        return np.tile(self.opinions if score == "score" else -self.opinions, (histories.shape[0], 1))

    def _like(self, histories, users=None, items=None):
        """Item n is liked with probability (n + 1/2) / items."""
        mean = np.where(items < 0, np.nan, (items + np.float32(0.5)) / len(self.opinions)).astype(np.float32)
        return mean, np.zeros_like(mean)

    def negative_distribution(self):
        return AllZeros()

    def _arrays(self):
        return {"opinions": self.opinions}


@pytest.fixture(scope="module", autouse=True)
def registered():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry.MODELS, "opinion", Opinion)
        yield


def to_csr(mask) -> csr_matrix:
    return csr_matrix(np.asarray(mask, dtype=np.float32))


def draw_split(protocol: str) -> SplitMatrices:
    """Users who like some items, considered others, and have some of both held out, one in eight no like."""
    marks = np.random.default_rng(2).random((USERS, ITEMS))
    kinds = [marks < 0.3, (marks > 0.3) & (marks < 0.4), (marks > 0.4) & (marks < 0.6), (marks > 0.6) & (marks < 0.7)]
    kinds[1][::8] = kinds[3][1::8] = False
    if protocol == "leave_one_out":
        kinds[1] &= np.cumsum(kinds[1], axis=1) == 1
    likes, targets, negatives, held_out = map(to_csr, kinds)
    users, items = np.arange(USERS, dtype=np.int32), np.arange(ITEMS, dtype=np.int32)
    part = Part(likes, targets, users, users if protocol == "leave_one_out" else None, held_out)
    return SplitMatrices(protocol, likes, users, items, {"test": part}, explicit_negatives=negatives)


def store_split(home: Home, split: SplitMatrices, *models: type[Model]) -> tuple[str, dict[str, str]]:
    """The digests of a stored split and of models fitted on it."""
    for model in models:
        fits.store_fit(home, model().fit(split.train), "digest", key="k", matrices="m", seconds=1, peak_bytes=1)
    return matrices.store_split(home, split), {model.name: "digest" for model in models}


def test_leave_one_out_fills_every_table_and_a_retry_replaces_its_own_rows_only(home):
    digest, fits = store_split(home, split := draw_split("leave_one_out"), Popularity, Opinion)

    def everything():
        tables = (*PROTOCOL_TABLES, *LEAVE_ONE_OUT_TABLES)
        found = [query_rows(home, f"select * from evaluation.{table} order by all") for table in tables]
        assert all(found)
        return found

    evaluate(home, "earlier", "leave_one_out", [(digest, {"popularity": "digest"})])
    found = evaluate(home, "run", "leave_one_out", [(digest, fits)])
    once, part = everything(), split.parts["test"]
    lists = query_rows(home, "select distinct model, score from evaluation.metrics where run_id = 'run' order by all")
    assert lists == [("opinion", "reversed"), ("opinion", "score"), ("popularity", "score")]
    shares, scores = [], np.arange(ITEMS)
    for history, target in zip(part.histories.toarray() > 0, part.targets.toarray() > 0, strict=True):
        if target.any():
            shares.append(np.mean(scores[target] > scores[~history]))
    ranks, users = np.array(shares), len(shares)
    assert (found.users, found.users_without_target) == (users, USERS - users) and users < USERS
    query = "select metric, value, standard_error, users from evaluation.metrics where (model, score) = (?, 'score')"
    table = {metric: row for metric, *row in query_rows(home, query, "opinion")}
    error = ranks.std() / np.sqrt(users)
    assert table["mean_rank"] == [pytest.approx(ranks.mean()), pytest.approx(error), users]
    assert table["median_rank"] == [pytest.approx(np.median(ranks)), None, users]
    for forgotten in ("false", "true"):  # whether the first try is known, whose rows would be taken
        execute_statement(home, f"delete from operations.stage_results where {forgotten}")
        evaluate(home, "run", "leave_one_out", [(digest, fits)])
        assert everything() == once
    assert {row[0] for row in once[0]} == {"earlier", "run"}


def test_popularity_is_no_worse_than_guessing_where_most_items_have_one_like_or_none_left(home):
    """Ten popular items, then 160 of one user each and 30 of none: each test user is to find one of either."""
    train, history, targets = np.zeros((40, 200)), np.zeros((20, 200)), np.zeros((20, 200))
    for user in range(40):
        train[user, : 1 + user % 10] = train[user, 10 + 4 * user : 14 + 4 * user] = 1
    history[:, 0] = 1
    for user in range(20):
        targets[user, [10 + 7 * user, 170 + user]] = 1
    numbers = np.arange(200, dtype=np.int32)
    part = Part(to_csr(history), to_csr(targets), np.arange(20))
    split = SplitMatrices("strong_generalization", to_csr(train), np.arange(40), numbers, {"test": part})
    digest, fitted = store_split(home, split, Popularity)
    evaluate(home, "run", "strong_generalization", [(digest, fitted)])
    degrees = train.sum(axis=0)
    others = [degrees[item] for item in range(1, 200)]  # candidates: all but the history
    expected = np.mean([(degree < 1) + (degree == 1) / 2 for degree in others]) - 1 / 2 / len(others)  # of itself
    found = dict(query_rows(home, "select metric, value from evaluation.metrics"))
    assert found["mean_rank_known_items"] == pytest.approx(expected) and expected > 0.5
    assert found["mean_rank"] < 0.1


def test_of_the_calls_after_one_that_fails_none_is_waited_for_and_the_user_is_named(home, monkeypatch):
    """Places 10 to 14 of the test part are the third call's; other models go on. Here one call follows the other."""
    marks = np.random.default_rng(4).random((30, 12))
    train, targets = to_csr(marks < 0.4), to_csr(marks > 0.8)
    rows = np.flatnonzero(np.arange(30) % 3).astype(np.int32)  # every third training user is no test user
    part = Part(train[rows], targets[rows], rows + 100, rows)
    numbers = [np.arange(size, dtype=np.int32) for size in train.shape]
    split = SplitMatrices("given", train, *numbers, {"test": part})
    home = replace(home, limits=replace(home.limits, threads=1))
    monkeypatch.setattr(jobs, "USERS_PER_BATCH", 1)
    monkeypatch.setattr(memory_estimates.FitCost, "users_per_block", lambda cost, items: 5)
    asked, whole = [], Popularity._scores

    class Odd(Popularity):
        name = "odd"

        def _scores(self, histories, users, score):
            asked.append(users.tolist())
            scores = whole(self, histories, users, score)
            scores[users == part.rows[12]] = np.nan
            return scores

    monkeypatch.setitem(registry.MODELS, "odd", Odd)
    digest, fitted = store_split(home, split, Odd, Popularity)
    found = evaluate(home, "run", "given", [(digest, fitted)])
    assert found.failed == {
        "odd": f"odd, score 'score', user_index {part.users[12]}: a score is NaN; its items cannot be ranked"
    }
    assert len(asked) == 3
    with pytest.raises(OneclassError) as error:
        evaluate(home, "alone", "given", [(digest, {"odd": "digest"})])
    assert isinstance(error.value.__cause__, CannotRank)


BEGAN = datetime(2026, 1, 2)
SHORT = {"popularity": {}, "random_graph": {"factors": 2, "iterations": 2}}
OF_RUN = [name for name in (*PROTOCOL_TABLES, *LEAVE_ONE_OUT_TABLES) if name != "considered"]


digests = copy_of("splits_once")


@pytest.fixture
def ranked_anew(monkeypatch):
    """The models that are ranked anew from now on."""
    found, collected = [], jobs.gather_batches
    monkeypatch.setattr(jobs, "gather_batches", lambda name, pending: found.append(name) or collected(name, pending))
    return found


@pytest.fixture
def run(home, digests, ranked_anew):
    return partial(evaluate_fits, home, digests)


def evaluate_fits(home, digests, name, models=("popularity", "random_graph"), **settings):
    """What a run of that name finds, with settings of its own for some models."""
    execute_statement(
        home,
        "insert into operations.runs by name select ? as run_id, ? as started_at, 'backfill' as flow, "
        "'completed' as state, 'tiny' as dataset, '{}' as settings, '' as code_version "
        "where not exists (from operations.runs where run_id = ?)",
        [name, BEGAN + timedelta(days=int(name.removeprefix("r"))), name],
    )
    fitted = {}
    for model in models:
        chosen = MODELS[model].Settings(**SHORT[model] | settings.get(model, {}))
        given = {"protocol": "leave_one_out", "run_id": name}
        fitted[model] = train_model(home, digests["leave_one_out"], model, chosen, **given).digest
    return evaluate(home, name, "leave_one_out", [(digests["leave_one_out"], fitted)])


def load_tables(home, run_id):
    query = "select * exclude run_id from evaluation.{} where run_id = ? order by all"
    return {table: query_rows(home, query.format(table), run_id) for table in OF_RUN}


@pytest.mark.slow
def test_a_run_takes_the_rows_of_the_last_unless_they_or_the_fits_or_their_order_changed(home, run, ranked_anew):
    first, both = run("r1"), ["popularity", "random_graph"]
    true = load_tables(home, "r1")
    assert run("r2") == first and run("r2") == first and ranked_anew == both  # a retry too
    assert load_tables(home, "r2") == true and all(true.values())
    for number, table in enumerate(OF_RUN, 3):
        of_last = f"select min(rowid) from evaluation.{table} where run_id = 'r{number - 1}'"
        execute_statement(home, f"delete from evaluation.{table} where rowid = ({of_last})")
        ranked_anew.clear()
        run(f"r{number}")
        assert ranked_anew == both and load_tables(home, f"r{number}") == true
    run("r90", random_graph={"factors": 3})
    run("r91", models=both[::-1])
    run("r92", models=both[::-1])
    assert ranked_anew == both * 2 + both[::-1]


@pytest.mark.parametrize("protocol", ["leave_one_out", "strong_generalization"])
def test_every_held_out_pair_is_judged_once(monkeypatch, protocol):
    considered = draw_split(protocol)
    fitted = RandomGraph(RandomGraphSettings(factors=3, iterations=5), seed=1, threads=1).fit(considered.train)
    monkeypatch.setattr(calibration, "USERS_PER_PAIR_BLOCK", 7)
    part, pairs = considered.parts["test"], []
    for user in range(USERS):
        row = None if part.rows is None else np.array([user])
        like = fitted.like(part.histories[user], users=row)[0][0]
        for matrix, liked in ((part.targets, True), (part.explicit_negatives, False)):
            pairs += [(item, like[item], liked) for item in matrix[user].indices]
    items, like, liked = map(np.array, zip(*pairs, strict=True))
    found = calibration.evaluate_explicit_feedback("any", calibration.score_explicit_pairs(fitted, part))
    expected = evaluate_probabilities(like, liked)
    for metric, figure in expected.items():
        assert found.figures[metric].value == pytest.approx(figure.value, abs=1e-6), metric
    assert (found.likes, found.dislikes) == (liked.sum(), (~liked).sum())
    assert sum(one.pairs for one in found.calibration) == len(like)
    shares = smoothed_like_rates(considered.train, considered.explicit_negatives)
    popular = calibration.evaluate_popularity_baseline([considered]).figures["considered_log_loss"].value
    assert popular == pytest.approx(evaluate_probabilities(shares[items], liked)["considered_log_loss"].value)
