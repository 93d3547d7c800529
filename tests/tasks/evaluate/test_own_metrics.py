"""`evaluate.metrics`: at any k, by entry point and by location, against `oneclass.evaluate` with the same functions."""

import importlib
import re
import sys

import polars as pl
import pytest

import oneclass
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.datasets.attributes import AttributeTable
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.metric_registry import choose_metrics
from oneclass.tasks.stores import warehouse
from tests.conftest import home_in
from tests.tasks.evaluate.test_strata import BY_ITEM, ESTIMATORS, draw_likes, run_stages, write_table
from tests.typed import page

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
ENTRY_POINTS = "[oneclass.metrics]\nearly = field_metrics:early_place\nndcg@100 = field_metrics:broken\n"
COLUMNS = "model, score, metric, value, standard_error, users"
PAIRS = "metric, model, score, other_model, other_score, difference, standard_error, p_value, users, adjusted_p_value"


@pytest.fixture
def field_metrics(tmp_path, monkeypatch):
    """The file of an installed module of metrics, some of which are entry points."""
    folder = tmp_path / "packages"
    (info := folder / "field_metrics-1.0.dist-info").mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: field-metrics\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (file := folder / "field_metrics.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(folder))
    yield file
    sys.modules.pop("field_metrics", None)


@pytest.fixture
def home(tmp_path, field_metrics):
    home = home_in(tmp_path)
    (log := tmp_path / "log.csv").write_text("user_id,item_id\n" + "".join(f"{u},{i}\n" for u, i in draw_likes()))
    write_table(tmp_path / "items.csv", BY_ITEM)
    items = AttributeTable(file=str(tmp_path / "items.csv"), category=("genre",))
    ingest(home, Dataset(name=home.dataset, items=items), [log], "run")
    binarize(home, BinarizeSettings(), "run")
    return home


def rows(home, query):
    with warehouse.open_warehouse(home, read_only=True) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.parametrize(
    ("protocol", "folds"), [("strong_generalization", 2), ("cold_items", None)], ids=["folds", "one split"]
)
def test_a_run_and_the_library_have_the_same_digits(home, protocol, folds):
    names = ["field_metrics:first_place", "early", "field_metrics:lengths", "precision@7", "MRR"]
    settings = {"folds": 2, "min_validation_users": 1 << 40} if folds else {}
    run_stages(home, protocol, settings=settings, models=list(ESTIMATORS), metrics=[*names, "recall@20"])
    module = importlib.import_module("field_metrics")
    given = [module.first_place, module.early_place, module.lengths, "precision@7", "MRR"]
    table = oneclass.Interactions(draw_likes(), items=pl.DataFrame(BY_ITEM))
    found = oneclass.evaluate(ESTIMATORS, table, protocol=protocol, metrics=given, folds=folds, threads=2)
    renamed = dict(zip(["first_place", "early_place", "lengths"], names, strict=False))
    for table, columns, expected in (
        ("metrics", COLUMNS, found.metrics.rows()),
        ("comparisons", PAIRS, found.comparisons.select(PAIRS.split(", ")).rows()),
    ):
        wanted = [tuple(renamed.get(cell, cell) for cell in row) for row in expected]
        chosen = f"select {columns} from evaluation.{table} where metric in {tuple(names)}"
        assert len(wanted) >= len(names) and sorted(rows(home, chosen), key=str) == sorted(wanted, key=str)
    users = dict(rows(home, "select model, users from evaluation.metrics where metric = 'early'"))
    assert users["popularity"] != users["mrf_dense"]  # so that fewer of both are compared


def test_other_metrics_or_another_source_are_evaluated_anew(home, field_metrics):
    counted = (
        "select count(*), max(value) from evaluation.metrics where run_id = '{}' and metric like 'field_metrics:%'"
    )
    own = ("field_metrics:first_place",)
    for run_id, metrics, count in (("none", (), 0), ("first", own, 1), ("again", own, 1), ("never", own, 0)):
        if run_id == "never":
            field_metrics.write_text(MODULE.replace("return user.places[0]\n", "return math.nan\n"))
            sys.modules.pop("field_metrics")
            importlib.invalidate_caches()
        run_stages(home, "leave_one_out", run_id, metrics=metrics)
        ((found, value),) = rows(home, counted.format(run_id))
        assert (found, value is None) == (count, count == 0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("broken", r"metric field_metrics:broken failed: IndexError\(.*; in the metric .*broken, of user 'u\d+'"),
        ("nothing", r"metric field_metrics:nothing failed: .*returns None for user 'u\d+'; return a number"),
        ("infinite", r"returns inf for user 'u\d+'; return a number, or NaN"),
    ],
)
def test_a_failing_function_is_named_with_the_user(home, name, message):
    with pytest.raises(InputError, match=message):
        run_stages(home, "leave_one_out", models=list(ESTIMATORS), metrics=[f"field_metrics:{name}"])


def test_the_functions_of_the_guide_run_in_the_library_and_in_a_run(home, field_metrics):
    blocks = re.findall(r"^```python\n(.*?)^```$", page("docs/how-to/adding_a_metric.md"), re.MULTILINE | re.DOTALL)
    exec("".join(blocks), {})  # noqa: S102
    field_metrics.write_text(blocks[0])
    run_stages(home, "leave_one_out", metrics=["field_metrics:first_place", "field_metrics:early_hits", "precision@7"])
    # each user has one target, so that none has ten
    found = rows(home, "select metric from evaluation.metrics where metric like 'field%' or metric = 'precision@7'")
    assert sorted(found) == [("field_metrics:first_place",), ("precision@7",)]


def test_metrics_that_cannot_be_found_are_refused(field_metrics):
    assert choose_metrics(["ndcg@100", "recall@20"]) == choose_metrics([])  # of every run, whoever claims the name
    for name, message in {
        "presicion@7": r"evaluate.metrics: presicion@7 is unknown. Did you mean precision@k\? .*\(early, ndcg@100\)",
        "coverage@50": "coverage@50 is no metric that each user has for itself",
        "ndcg@100_new": "ndcg@100_new is no metric that each user has for itself",
        "absent_module:function": "No module named 'absent_module'. Write module:function",
        "field_metrics:absent": "field_metrics has no function absent",
        "field_metrics:not_callable": "field_metrics has no function not_callable",
        ":function": "Write module:function of an installed module",
    }.items():
        with pytest.raises(InputError, match=message):
            choose_metrics([name])
