"""What users of RecTools, LensKit and RecBole take for granted, from a wheel in an empty folder.

This file runs there as a program, which calls each function whose name begins with `granted`, in a process that takes
the library from the installed wheel.
"""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.sparse import coo_matrix, csr_matrix

import oneclass

pytestmark = pytest.mark.slow  # a wheel is built and installed

ROOT = Path(__file__).parents[2]
PACKAGED = ("flows", "tasks", "models", "sql", "data_contracts", "oneclass")

DRAWS = np.random.default_rng(0).zipf(1.3, (200, 12)) % 40
ROWS = [(f"u{u}", f"i{int(i) + u % 2 * 30}", int(t)) for u, row in enumerate(DRAWS) for t, i in enumerate(row)]
LOG = pl.DataFrame(ROWS, schema=["user_id", "item_id", "occurred_at"], orient="row")
evaluate = partial(oneclass.evaluate, protocol="leave_one_out", threads=1)


def granted_a_frame_is_fitted_and_lists_have_ids():
    lists = oneclass.MRFDense().fit(LOG).recommend(users=["u1", "u7"], n=5)
    assert lists.columns == ["user_id", "rank", "item_id", "score"]
    assert lists["user_id"].to_list() == ["u1"] * 5 + ["u7"] * 5 and set(lists["item_id"]) <= set(LOG["item_id"])


def granted_pandas_and_arrow_are_read_as_polars_is():
    import pandas as pd

    model = oneclass.Popularity()
    expected = model.fit(LOG).recommend(n=3)
    frame = pd.DataFrame(LOG.to_dict(as_series=False))
    assert model.clone().fit(frame).recommend(n=3).equals(expected)
    assert model.clone().fit(LOG.to_arrow()).recommend(n=3).equals(expected)


def granted_an_array_of_id_pairs_is_refused_with_advice():
    pairs = np.stack([np.arange(1, 31), np.arange(30, 0, -1)], axis=1)
    for call in (lambda: oneclass.Popularity().fit(csr_matrix(pairs)), lambda: oneclass.Interactions(pairs)):
        try:
            call()
        except (TypeError, ValueError) as error:
            assert "pairs of ids" in str(error) and "give" in str(error)
        else:
            raise AssertionError("took ids for a matrix")


def granted_parameters_are_keywords_and_cloned():
    model = oneclass.WMF(factors=8, seed=3)
    assert repr(model) == "WMF(factors=8, seed=3)" and model.get_params()["factors"] == 8
    assert model.set_params(factors=4).clone().get_params() == model.get_params()
    try:
        oneclass.WMF(factor=8)
    except TypeError as error:
        assert "factors" in str(error)
    else:
        raise AssertionError("took an unknown parameter")


def granted_a_model_that_is_not_fitted_says_so():
    for call in (lambda m: m.recommend(users=["u1"]), lambda m: m.similar_items(["i1"]), lambda m: m.save("nowhere")):
        try:
            call(oneclass.WMF())
        except oneclass.NotFittedError as error:
            assert "fit" in str(error)
        else:
            raise AssertionError("answered without a fit")


def granted_seen_items_are_not_recommended():
    lists = oneclass.ItemKNN().fit(LOG).recommend(n=10)
    assert lists.join(LOG, on=["user_id", "item_id"], how="semi").is_empty()


def granted_histories_of_new_users_are_answered():
    lists = oneclass.MRFDense().fit(LOG).recommend([["i1", "i2"], ["i31"]], n=3)
    assert lists.height == 6 and not {"i1", "i2"} & set(lists["item_id"][:3])


def granted_histories_of_a_wrong_width_are_refused():
    model = oneclass.Popularity().fit(csr_matrix(np.eye(4)))
    try:
        model.recommend(csr_matrix(np.ones((1, 3))), 1)
    except ValueError as error:
        assert "3" in str(error) and "4" in str(error)
    else:
        raise AssertionError("answered histories of 3 items for a model of 4")


def granted_similar_items_have_ids():
    similar = oneclass.ItemKNN().fit(LOG).similar_items(["i1"], n=3)
    assert similar.columns == ["item_id", "rank", "similar_item_id", "similarity"] and similar.height == 3
    assert "i1" not in similar["similar_item_id"].to_list()


def granted_save_and_load_by_a_text_of_a_path():
    model = oneclass.MRFDense().fit(LOG)
    model.save("saved/deep")
    assert oneclass.MRFDense.load("saved/deep").recommend(n=5).equals(model.recommend(n=5))


def granted_a_fit_shows_its_progress():
    error = io.StringIO()
    with contextlib.redirect_stderr(error):
        oneclass.WMF(factors=4, iterations=3).fit(LOG, progress=True)
    assert "100%" in error.getvalue()


def granted_a_matrix_goes_in_and_comes_back():
    matrix = coo_matrix(([2.0, 1.0], ([0, 1], [2, 0])), shape=(2, 3))
    table = oneclass.Interactions.from_matrix(matrix, ["a", "b"], ["x", "y", "z"])
    assert (table.matrix.toarray() == matrix.toarray()).all() and list(table.user_ids) == ["a", "b"]
    assert list(table.item_ids) == ["x", "y", "z"]


def granted_columns_of_any_name_weights_and_times():
    frame = pl.DataFrame({"who": ["a", "a", "b"], "what": ["x", "x", "y"], "often": [2, 3, 1], "when": [1, 2, 3]})
    table = oneclass.Interactions(frame, user="who", item="what", weight="often", time="when")
    assert sorted(table.matrix.data.tolist()) == [1.0, 5.0]


def granted_the_same_seed_gives_the_same_lists_on_any_threads():
    one, two = (oneclass.WMF(factors=8, seed=1, threads=threads).fit(LOG).recommend(n=5) for threads in (1, 2))
    assert one.equals(two)


def granted_several_models_are_compared_with_errors_and_tests():
    found = evaluate([oneclass.Popularity(), oneclass.MRFDense()], LOG)
    assert found.metrics.filter(metric="ndcg@100")["standard_error"].min() > 0
    assert found.comparisons.filter(metric="ndcg@100").height == 1 and "adjusted_p_value" in found.comparisons.columns
    assert found.table().height == 2


def granted_metrics_have_any_k_and_the_names_of_the_field():
    names = ["precision@3", "recall@7", "recall_of_all@7", "hr@5", "map@5", "MRR", "ndcg@9", "auc", "mpr", "mean_rank"]
    found = evaluate(oneclass.Popularity(), LOG, metrics=names)
    assert found.metrics["metric"].to_list() == names and found.metrics["value"].is_between(0, 1).all()


def granted_a_function_is_a_metric():
    def in_first_three(user):
        return float((user.places <= 3).any())

    found = evaluate(oneclass.Popularity(), LOG, metrics=[in_first_three, "hr@3"])
    one, other = found.metrics["value"]
    assert one == other > 0


def granted_metrics_are_split_by_strata():
    found = evaluate(oneclass.Popularity(), LOG, metrics="mrr", strata="popularity")
    assert found.strata["stratum"].to_list() == ["low", "middle", "high"] and found.strata["value"].is_sorted()


def granted_settings_are_searched_on_validation_users():
    search = oneclass.tune(oneclass.MRFDense(), LOG, trials=2, protocol="leave_one_out", threads=1)
    assert search.trials.height == 2 and isinstance(search.best, oneclass.MRFDense)


def granted_a_model_of_ones_own_is_evaluated_beside_others():
    class Backwards(oneclass.Popularity):
        name = "backwards"

        def _scores(self, histories, users, score):
            return -super()._scores(histories, users, score)

    found = evaluate([Backwards(), oneclass.Popularity()], LOG, metrics="mean_rank")
    backwards, popularity = found.metrics["value"]
    assert backwards < 0.5 < popularity


GRANTED: dict[str, Callable[[], None]] = {
    name: granted for name, granted in list(globals().items()) if name.startswith("granted")
}


def run_all() -> dict[str, str]:
    """Return the traceback of each function, empty if it passes, and where the library is imported from."""
    found = {"origin": oneclass.__file__}
    for name, granted in GRANTED.items():
        try:
            granted()
            found[name] = ""
        except Exception:  # noqa: BLE001  (an outcome like any other)
            found[name] = traceback.format_exc()
    return found


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """The traceback of each function, or nothing, from one process that has only the wheel."""
    folder = tmp_path_factory.mktemp("granted")
    source, empty = folder / "source", folder / "empty"
    empty.mkdir()
    for package in PACKAGED:
        shutil.copytree(ROOT / package, source / package, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / file, source)
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, source], check=True)
    [wheel] = folder.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--no-compile", "--target", folder / "site", wheel], check=True)
    environment = {**os.environ, "PYTHONPATH": str(folder / "site")}
    done = subprocess.run(
        [sys.executable, "-P", __file__],  # -P: without the folder of this file
        cwd=empty,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("origin") == str(folder / "site" / "oneclass" / "__init__.py")
    return found


def test_there_are_twenty():
    assert len(GRANTED) == 20


@pytest.mark.parametrize("name", GRANTED)
def test_it_works(outcomes, name):
    assert outcomes[name] == ""


if __name__ == "__main__":
    print(json.dumps(run_all()))
