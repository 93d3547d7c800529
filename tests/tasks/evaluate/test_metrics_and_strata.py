"""`evaluate.metrics`, by name and location, against `oneclass.evaluate`; `evaluation.strata` against plain counts."""

import importlib
import sys
from collections import Counter
from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest

import oneclass
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.errors import InputError
from oneclass.tasks.evaluate.own_metrics import choose_metrics
from oneclass.tasks.evaluate.stage import evaluate
from oneclass.tasks.evaluate.tables import STRATUM_METRICS
from oneclass.tasks.protocols import list_splits
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import SplitPlan, split
from tests.conftest import home_in, query_rows
from tests.tasks.conftest import copy_of, fit_models, ingest_with_items

USERS, ITEMS = 150, 70
ESTIMATORS = {"popularity": oneclass.Popularity(), "mrf_dense": oneclass.MRFDense(l2=5.0)}
BY_ITEM = {"item_id": [f"i{item}" for item in range(ITEMS)], "genre": [f"g{item % 3}" for item in range(ITEMS)]}
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


not_callable = 7
'''


def draw_likes():
    generator = np.random.default_rng(4)
    return [
        (f"u{user}", f"i{item}")
        for user in range(USERS)
        for item in sorted({int(draw) % 40 + user % 2 * 30 for draw in generator.zipf(1.3, 4 + user % 3 * 6)})
    ]


def draw_log():
    """The same likes with times, in another order than the log's."""
    rows = [(*like, datetime(2026, 1, 1) + timedelta(hours=at * 7 % 1000)) for at, like in enumerate(draw_likes())]
    return pl.DataFrame(rows, ["user_id", "item_id", "time"], orient="row")


@pytest.fixture(scope="module")
def shop_once(tmp_path_factory):
    """A home with a log, the attributes of its items and a fit on leave_one_out, and the folder of both."""
    folder = tmp_path_factory.mktemp("shop")
    home, items = home_in(folder), pl.DataFrame(BY_ITEM)
    ingest_with_items(home, folder, draw_log().write_csv(), items.write_csv(), category=("genre",))
    binarize(home, BinarizeSettings(), "run")
    fit_splits(home, "leave_one_out", "run")
    return home, folder


shop = copy_of("shop_once")


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
    settings = {model: ESTIMATORS[model].settings for model in models}
    splits = list_splits(protocol, digests)
    return [fit_models(home, digests[name], settings, protocol=name, run_id=run_id) for name in splits]


def run_stages(home, protocol, run_id="run", settings=None, models=("popularity",), **options):
    return evaluate(home, run_id, protocol, fit_splits(home, protocol, run_id, settings, models), **options)


def load_rows(home, where, columns, table="metrics"):
    return query_rows(home, f"select {columns} from evaluation.{table} where {where}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "folds"),
    [("strong_generalization", 2), ("leave_one_out", None), ("next_events", None), ("cold_items", None)],
)
def test_a_run_and_the_library_have_the_same_digits(home, shop, field_metrics, protocol, folds):
    own = ["field_metrics:first_place", "field_metrics:early_place", "field_metrics:lengths", "precision@7", "MRR"]
    settings = {"min_validation_users": 1 << 40} if folds else {}
    run_stages(home, protocol, settings=settings, models=list(ESTIMATORS), metrics=[*own, "recall@20"])
    table = oneclass.Interactions(draw_log(), items=pl.DataFrame(BY_ITEM))
    module = importlib.import_module("field_metrics")
    given = [module.first_place, module.early_place, module.lengths, "precision@7", "MRR"]
    found = oneclass.evaluate(ESTIMATORS, table, protocol=protocol, metrics=given, folds=folds, threads=2)
    renamed = dict(zip(["first_place", "early_place", "lengths"], own, strict=False))
    for name, columns in (("metrics", VALUES), ("comparisons", PAIRS)):
        wanted = [
            tuple(renamed.get(cell, cell) for cell in row)
            for row in getattr(found, name).select(columns.split(", ")).rows()
        ]
        rows = load_rows(home, f"metric in {tuple(own)}", columns, name)
        assert len(wanted) >= len(own) and sorted(rows, key=str) == sorted(wanted, key=str)
    users = dict(load_rows(home, "metric = 'field_metrics:early_place'", "model, users"))
    assert users["popularity"] != users["mrf_dense"]  # so that fewer of both are compared


def divide_by_thirds(value_of):
    ordered = sorted(value_of.values())
    low, middle = (ordered[int(np.ceil(len(ordered) * part / 3)) - 1] for part in (1, 2))
    return {key: "low" if x <= low else "middle" if x <= middle else "high" for key, x in value_of.items()}


def list_metrics(places, candidates):
    """The metrics of one user, of some of the targets, without ties."""
    gains, ideal = (np.log2(np.array(at) + 1.0) ** -1 for at in (places[places <= 100], range(1, len(places) + 1)))
    ranks = np.mean((candidates - places) / candidates)
    return {"ndcg@100": sum(gains) / sum(ideal), "recall@20": np.mean(places <= 20), "mean_rank": ranks}


@pytest.mark.parametrize(("protocol", "known"), [("strong_generalization", "fold_in"), ("leave_one_out", "train")])
def test_strata_are_thirds_of_users_and_items_by_plain_counts(home, shop, protocol, known):
    """Of a user with targets in several strata of items, the others stay in the ranking."""
    run_stages(home, protocol, settings={"min_validation_users": 0}, models=["mrf_dense"])
    ranked = []
    model, options = ESTIMATORS["mrf_dense"], {"protocol": protocol, "folds": 1, "threads": 1}
    oneclass.evaluate(model, draw_likes(), metrics=lambda user: ranked.append(user) or 0.0, **options)
    edges = query_rows(home, f"select user_id, item_id, role from splits.{protocol} where role <> 'dropped'")
    lengths = Counter(user for user, _, role in edges if role == known)
    likes = {item: 0 for _, item, _ in edges} | Counter(item for _, item, role in edges if role in ("fit", "train"))
    lengths = {user.user_id: lengths[user.user_id] for user in ranked}
    columns = "stratum, metric, least, most, value, standard_error, users, targets"
    for strata, values in (("activity", lengths), ("popularity", likes)):
        thirds, expected = divide_by_thirds(values), {}
        for third in ("low", "middle", "high"):
            inside = [values[key] for key in values if thirds[key] == third]
            of_users = []
            for user in ranked:
                keys = [user.user_id] * len(user.targets) if strata == "activity" else user.targets
                of_users.append((user.places[[thirds[key] == third for key in keys]], user.candidates))
            of_users = [(places, candidates) for places, candidates in of_users if len(places)]
            for metric in STRATUM_METRICS:
                found = [list_metrics(*user)[metric] for user in of_users]
                error, targets = np.std(found) / np.sqrt(len(found)), sum(len(places) for places, _ in of_users)
                expected[third, metric] = min(inside), max(inside), np.mean(found), error, len(found), targets
        rows = {row[:2]: row[2:] for row in load_rows(home, f"strata = '{strata}'", columns, "strata")}
        assert rows.keys() == expected.keys() and len(rows) == 9
        for key, row in rows.items():
            assert row == pytest.approx(expected[key]), key


def test_other_metrics_or_another_source_are_evaluated_anew(home, shop, field_metrics):
    own = ("field_metrics:first_place",)
    for run_id, metrics, count in (("none", (), 0), ("first", own, 1), ("again", own, 1), ("never", own, 0)):
        if run_id == "never":
            field_metrics.write_text(MODULE.replace("return user.places[0]\n", "return math.nan\n"))
            sys.modules.pop("field_metrics")
            importlib.invalidate_caches()
        run_stages(home, "leave_one_out", run_id, metrics=metrics)
        counted = f"run_id = '{run_id}' and metric like 'field_metrics:%'"
        ((found, value),) = load_rows(home, counted, "count(*), max(value)")
        assert (found, value is None) == (count, count == 0)


def test_metrics_that_fail_or_cannot_be_found_are_refused(home, shop, field_metrics):
    message = r"metric field_metrics:broken failed for user 'u\d+': IndexError\("
    with pytest.raises(InputError, match=message):
        run_stages(home, "leave_one_out", metrics=["field_metrics:broken"])
    assert choose_metrics(["ndcg@100", "recall@20"]) == choose_metrics([])  # of every run
    for name, message in {
        "presicion@7": r"evaluate.metrics: presicion@7 is unknown. Did you mean precision@k\? ",
        "coverage@20": "coverage@20 is no metric of single users",
        "absent_module:function": "No module named 'absent_module'. Write module:function",
        "field_metrics:not_callable": "field_metrics has no function not_callable",
    }.items():
        with pytest.raises(InputError, match=message):
            choose_metrics([name])
