"""A run on a small log: what is published, the table and the sentences come from the users of all folds."""

import json

import numpy as np
import pytest

from oneclass.flows import commands
from oneclass.models.registry import MODELS as KINDS
from tests.flows.conftest import query_rows
from tests.tasks.test_blend import Half, OtherHalf

USERS = 300


@pytest.mark.slow
def test_a_small_log_is_judged_by_folds_and_a_blend_by_weights_that_other_folds_chose(
    prefect_server, folds, tmp_path, monkeypatch, capsys, caplog
):
    """Of two models each knows one half of the items, of which users like some, in each half of one of two tastes."""
    caplog.set_level("INFO", logger="oneclass")
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
    words = ["--dataset", "ml-latest-small", "--home", str(home), "--source", str(log), "--threads", "2"]
    words += ["--models", "half,other_half,blend", "--protocols", "strong_generalization"]
    words += ["--set", "other_half.first=30"]
    assert commands.main("backfill", words) == 0
    [(users, most)] = query_rows(home, "select min(users), max(users) from evaluation.metrics")
    assert users == most and 0.95 * USERS < users <= USERS
    assert f"{users} users in 5 folds\n" in capsys.readouterr().out
    [(reason,)] = query_rows(home, "select reason from operations.promotions")
    assert f"for {users} validation users in 5 folds (users never seen)" in reason
    fitted = "select count(*) from operations.model_fits where protocol like 'strong_generalization_fold_%'"
    assert query_rows(home, fitted) == [(5 * 3,)]

    searched = "select settings, reached, at_start from operations.model_settings where model = 'blend'"
    [(settings, reached, alone)] = query_rows(home, searched)
    of_blend = "select value from evaluation.metrics where model = 'blend' and metric like '%ndcg@100'"
    shown = [value for (value,) in query_rows(home, of_blend)]  # of the table, and of validation
    assert shown == [pytest.approx(reached, abs=1e-9)] * 2 and shown[0] > alone
    stored = [json.loads(file.read_text())["settings"] for file in home.glob("**/models/blend/*/settings.json")]
    weights = {tuple(one["weight"] for one in of["components"]) for of in [*stored, json.loads(settings)]}
    assert len(weights) > 1  # so that the table would show another figure by the weights of the published blend

    caplog.clear()
    assert commands.main("backfill", words) == 0  # a night with nothing new fits and judges nothing anew
    assert ": fitting " not in caplog.text and "evaluate strong_generalization: nothing is new" in caplog.text
