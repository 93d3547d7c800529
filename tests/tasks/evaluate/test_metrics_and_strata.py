"""`evaluation.strata` and `evaluate.metrics` against `oneclass.evaluate`, whose own tests recount it, to the digit.

Metrics are at any k and by location.
"""

import importlib
import shutil
import sys

import numpy as np
import polars as pl
import pytest

import oneclass
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.datasets.columns import AttributeTable
from oneclass.tasks.errors import InputError
from oneclass.tasks.evaluate import evaluate
from oneclass.tasks.evaluate.strata import METRICS, STRATA
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.metric_registry import choose_metrics
from oneclass.tasks.protocols import list_splits
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import SplitPlan, split
from tests.conftest import home_in, query_rows
from tests.tasks.conftest import train_model

USERS, ITEMS = 150, 70
ESTIMATORS = {"popularity": oneclass.Popularity(), "mrf_dense": oneclass.MRFDense(l2=5.0)}
BY_ITEM = {"item_id": [f"i{item}" for item in range(ITEMS)], "genre": [f"g{item % 3}" for item in range(ITEMS)]}
COLUMNS = "model, score, metric, stratum, least, most, value, standard_error, users, targets"
VALUES = "model, score, metric, value, standard_error, users"
PAIRS = "metric, model, score, other_model, other_score, difference, standard_error, p_value, users, adjusted_p_value"
MODULE = '''
import math


def first_place(user):
    return user.places[0]


def early_place(user):
    """Of the users with a hit alone, who are others in each list."""
    return 1 / user.places[0] if user.places[0] <= 2 else math.nan


def lengths(user):
    return 100 * len(user.user_id) + len(user.targets[0]) + user.candidates / 1000


def broken(user):
    return user.places[9]


def nothing(user):
    return None


def infinite(user):
    return math.inf


def never(user):
    return math.nan


not_callable = 7
'''


def draw_likes():
    generator = np.random.default_rng(4)
    return [
        (f"u{user}", f"i{item}")
        for user in range(USERS)
        for item in sorted({int(draw) % 40 + user % 2 * 30 for draw in generator.zipf(1.3, 4 + user % 3 * 6)})
    ]


@pytest.fixture(scope="module")
def shop_once(tmp_path_factory):
    """The folder of a log, with a home: its likes, the attributes of items, and a fit on leave_one_out."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "log.csv").write_text("user_id,item_id\n" + "".join(f"{u},{i}\n" for u, i in draw_likes()))
    pl.DataFrame(BY_ITEM).write_csv(folder / "items.csv")
    home, items = home_in(folder), AttributeTable(file=str(folder / "items.csv"), category=("genre",))
    ingest(home, Dataset(name=home.dataset, items=items), [folder / "log.csv"], "run")
    binarize(home, BinarizeSettings(), "run")
    fit_splits(home, "leave_one_out", "run")
    return folder


@pytest.fixture
def shop(shop_once, tmp_path):
    """The test's own copy of that folder, and the home in it."""
    shutil.copytree(shop_once, tmp_path, dirs_exist_ok=True)
    return home_in(tmp_path), tmp_path


@pytest.fixture
def field_metrics(tmp_path, monkeypatch):
    """The file of a module of metrics."""
    (file := tmp_path / "field_metrics.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield file
    sys.modules.pop("field_metrics", None)


def fit_splits(home, protocol, run_id, settings=None, models=("popularity",)):
    """Split in two folds, if in any, and fit; returns a digest and its fits for each split of the protocol."""
    digests = split(home, run_id, SplitPlan(SplitSettings(**settings or {}), [protocol], seed=0, folds=2)).digests
    fitted = []
    for name in list_splits(protocol, digests):
        common = {"protocol": name, "run_id": run_id}
        fits = {
            model: train_model(home, digests[name], model, ESTIMATORS[model].settings, **common).digest
            for model in models
        }
        fitted.append((digests[name], fits))
    return fitted


def run_stages(home, protocol, run_id="run", settings=None, models=("popularity",), **options):
    return evaluate(home, run_id, protocol, fit_splits(home, protocol, run_id, settings, models), **options)


def load_rows(home, where="true", columns=COLUMNS, table="strata"):
    return query_rows(home, f"select {columns} from evaluation.{table} where {where}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "folds", "compared"),
    [
        ("strong_generalization", 2, ("activity",)),
        ("leave_one_out", None, ("activity", "popularity")),
        ("cold_items", None, ("popularity",)),
    ],
)
def test_a_run_and_the_library_have_the_same_digits(shop, field_metrics, protocol, folds, compared):
    home, _ = shop
    own = ["field_metrics:first_place", "field_metrics:early_place", "field_metrics:lengths", "precision@7", "MRR"]
    settings = {"min_validation_users": 1 << 40} if folds else {}
    run_stages(home, protocol, settings=settings, models=list(ESTIMATORS), metrics=[*own, "recall@20"])
    assert {row[0] for row in load_rows(home, columns="distinct strata")} == set(STRATA)
    table = oneclass.Interactions(draw_likes(), items=pl.DataFrame(BY_ITEM))
    module = importlib.import_module("field_metrics")
    given = [module.first_place, module.early_place, module.lengths, "precision@7", "MRR"]
    options = {"protocol": protocol, "metrics": [*METRICS, *given], "folds": folds, "threads": 2}
    for strata in compared:
        found = oneclass.evaluate(ESTIMATORS, table, strata=strata, **options)
        expected = found.strata.filter(pl.col("metric").is_in(METRICS)).rows()
        assert len(expected) > 6
        of_own = f"strata = '{strata}' and metric in {tuple(METRICS)}"
        assert sorted(map(str, load_rows(home, of_own))) == sorted(map(str, expected))
    renamed = dict(zip(["first_place", "early_place", "lengths"], own, strict=False))
    for name, columns in (("metrics", VALUES), ("comparisons", PAIRS)):
        chosen = [
            tuple(renamed.get(cell, cell) for cell in row)
            for row in getattr(found, name).select(columns.split(", ")).rows()
        ]
        wanted = [row for row in chosen if {*row} & {*own}]
        rows = load_rows(home, f"metric in {tuple(own)}", columns, name)
        assert len(wanted) >= len(own) and sorted(rows, key=str) == sorted(wanted, key=str)
    users = dict(load_rows(home, "metric = 'field_metrics:early_place'", "model, users", "metrics"))
    assert users["popularity"] != users["mrf_dense"]  # so that fewer of both are compared


def test_other_metrics_or_another_source_are_evaluated_anew(shop, field_metrics):
    home, _ = shop
    own = ("field_metrics:first_place",)
    for run_id, metrics, count in (("none", (), 0), ("first", own, 1), ("again", own, 1), ("never", own, 0)):
        if run_id == "never":
            field_metrics.write_text(MODULE.replace("return user.places[0]\n", "return math.nan\n"))
            sys.modules.pop("field_metrics")
            importlib.invalidate_caches()
        run_stages(home, "leave_one_out", run_id, metrics=metrics)
        counted = f"run_id = '{run_id}' and metric like 'field_metrics:%'"
        ((found, value),) = load_rows(home, counted, "count(*), max(value)", "metrics")
        assert (found, value is None) == (count, count == 0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("broken", r"metric field_metrics:broken failed: IndexError\(.*; in the metric .*broken, of user 'u\d+'"),
        ("nothing", r"metric field_metrics:nothing failed: .*returns None for user 'u\d+'; return a number"),
        ("infinite", r"returns inf for user 'u\d+'; return a number, or NaN"),
    ],
)
def test_a_failing_function_is_named_with_the_user(shop, field_metrics, name, message):
    with pytest.raises(InputError, match=message):
        run_stages(shop[0], "leave_one_out", metrics=[f"field_metrics:{name}"])


def test_metrics_that_cannot_be_found_are_refused(field_metrics):
    assert choose_metrics(["ndcg@100", "recall@20"]) == choose_metrics([])  # of every run
    for name, message in {
        "presicion@7": r"evaluate.metrics: presicion@7 is unknown. Did you mean precision@k\? ",
        "coverage@50": "coverage@50 is no metric of single users",
        "ndcg@100_new": "ndcg@100_new is no metric of single users",
        "absent_module:function": "No module named 'absent_module'. Write module:function",
        "field_metrics:absent": "field_metrics has no function absent",
        "field_metrics:not_callable": "field_metrics has no function not_callable",
        ":function": "Write module:function of an installed module",
    }.items():
        with pytest.raises(InputError, match=message):
            choose_metrics([name])
