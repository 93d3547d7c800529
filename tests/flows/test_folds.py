"""A run on a small log: what is published, the table and the sentences come from the users of all folds."""

import json

import numpy as np
import pytest

from oneclass.flows import commands
from oneclass.models.registry import MODELS as KINDS
from tests.flows.conftest import query_rows
from tests.tasks.test_blend import Half, OtherHalf

MODELS = "popularity,mrf_dense,blend"
USERS = 300


@pytest.fixture
def log(tmp_path):
    """A MovieLens csv of 300 users of two tastes, without days to cut at."""
    generator = np.random.default_rng(2)
    lines = ["userId,movieId,rating"]
    for user in range(USERS):
        films = {user % 2 * 40 + film % 40 for film in generator.zipf(1.3, 16)} | set(generator.choice(80, 3).tolist())
        lines += [f"{user + 1},{film + 1},5" for film in sorted(films)]
    path = tmp_path / "ratings.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def run_backfill(home, log, models=MODELS, *more):
    words = ["--dataset", "ml-latest-small", "--models", models, "--protocols", "strong_generalization"]
    return commands.main("backfill", [*words, "--threads", "2", "--home", str(home), "--source", str(log), *more])


@pytest.mark.slow
def test_a_small_log_is_judged_by_folds(prefect_server, folds, log, tmp_path, capsys, caplog):
    caplog.set_level("INFO", logger="oneclass")
    home = tmp_path / "home"
    assert run_backfill(home, log) == 0
    out, logged = capsys.readouterr().out, caplog.text
    [(users, most)] = query_rows(
        home, "select min(users), max(users) from evaluation.metrics where protocol = 'strong_generalization'"
    )
    assert users == most and 0.95 * USERS < users <= USERS
    assert f"## strong_generalization\n\n{users} users in 5 folds\n" in out and "slightly too high" in out
    assert f"by ndcg@100 of {users} validation users in 5 folds" in logged  # the search
    assert f"over {users} validation users in 5 folds" in logged  # the blend
    [(challenger, reason)] = query_rows(home, "select challenger, reason from operations.promotions")
    assert f"for {users} validation users in 5 folds (users never seen)" in reason
    of_chosen = f"protocol = 'strong_generalization' and model || '/' || score = '{challenger}'"
    values = f"select value from evaluation.metrics where metric like '%ndcg@100' and {of_chosen}"
    assert (
        len(query_rows(home, values)) == 2 and len(set(query_rows(home, values))) == 1
    )  # the table's, and that of validation
    fitted = "select count(*) from operations.model_fits where protocol like 'strong_generalization_fold_%'"
    models = query_rows(home, "select count(distinct model) from evaluation.metrics")
    assert query_rows(home, fitted) == [(5 * models[0][0],)]

    caplog.clear()
    assert run_backfill(home, log) == 0  # a night with nothing new fits and judges nothing anew
    logged = caplog.text
    assert (
        "fitted before on these edges with these settings, taken from the store: " in logged
        and ": fitting " not in logged
    )
    assert "evaluate strong_generalization: nothing is new" in logged


@pytest.mark.slow
def test_the_users_of_a_fold_judge_a_blend_by_weights_that_other_folds_chose(
    prefect_server, folds, tmp_path, monkeypatch
):
    """Of two models each knows one half of the items, of which users like some, in each half of one of two tastes."""
    for kind in (Half, OtherHalf):
        monkeypatch.setitem(KINDS, kind.name, kind)
    generator = np.random.default_rng(4)
    lines = ["userId,movieId,rating", *(f"1,{film},5" for film in range(60))]  # so that columns are in this order
    for user in range(2, USERS):
        tastes = generator.integers(2, size=2)
        films = [film for film in range(60) if (film + tastes[film // 30]) % 2]
        lines += [f"{user},{film},5" for film in generator.choice(films, 11, replace=False)]
    log, home = tmp_path / "halves.csv", tmp_path / "home"
    log.write_text("\n".join(lines) + "\n")
    assert run_backfill(home, log, "half,other_half,blend", "--set", "other_half.first=30") == 0
    searched = "select settings, reached, at_start from operations.model_settings where model = 'blend'"
    [(settings, reached, alone)] = query_rows(home, searched)
    [(shown, users)] = query_rows(
        home, "select value, users from evaluation.metrics where model = 'blend' and metric = 'ndcg@100'"
    )
    assert shown == pytest.approx(reached, abs=1e-9) and shown > alone and 0.95 * USERS < users
    stored = [json.loads(file.read_text())["settings"] for file in home.glob("**/models/blend/*/settings.json")]
    weights = {tuple(one["weight"] for one in of["components"]) for of in [*stored, json.loads(settings)]}
    assert len(weights) > 1  # so that the table would show another figure by the weights of the published blend
