"""`evaluation.strata` against `oneclass.evaluate(strata=...)`, whose own tests recount it; digit for digit."""

import csv

import numpy as np
import polars as pl
import pytest

import oneclass
from oneclass.tasks.attributes import MAX_FEW_TEXTS
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.datasets.attributes import AttributeTable
from oneclass.tasks.errors import InputError
from oneclass.tasks.evaluate import evaluate
from oneclass.tasks.evaluate.strata import METRICS, divide_by_attribute
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.protocols import list_splits
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import split
from oneclass.tasks.stores import warehouse
from oneclass.tasks.train import train
from tests.conftest import home_in

USERS, ITEMS = 150, 70
ESTIMATORS = {"popularity": oneclass.Popularity(), "mrf_dense": oneclass.MRFDense(l2=5.0)}
COUNTRIES = ["no", "za", None]
BY_USER = {
    "user_id": [f"u{user}" for user in range(USERS - 20)],  # the others have no attributes
    "country": [COUNTRIES[user % 3] for user in range(USERS - 20)],
    "tags": [["a"] * (user % 2) + ["b"] * (user % 3 == 0) for user in range(USERS - 20)],
    "town": [f"t{user % (MAX_FEW_TEXTS + 1)}" for user in range(USERS - 20)],
    "age": [20.5 + user % 40 for user in range(USERS - 20)],
}
BY_ITEM = {"item_id": [f"i{item}" for item in range(ITEMS)], "genre": [f"g{item % 3}" for item in range(ITEMS)]}
BY_DEFAULT = ["activity", "popularity", "country", "tags", "age"]
COLUMNS = "model, score, metric, stratum, least, most, value, standard_error, users, targets"


def draw_likes():
    generator = np.random.default_rng(4)
    return [
        (f"u{user}", f"i{item}")
        for user in range(USERS)
        for item in sorted({int(draw) % 40 + user % 2 * 30 for draw in generator.zipf(1.3, 4 + user % 3 * 6)})
    ]


def write_table(path, columns):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        cells = zip(*columns.values(), strict=True)
        writer.writerows(["|".join(cell) if isinstance(cell, list) else cell for cell in row] for row in cells)


@pytest.fixture
def shop(tmp_path):
    """A home with the likes, and the attributes of users and items."""
    home = home_in(tmp_path)
    (log := tmp_path / "log.csv").write_text("user_id,item_id\n" + "".join(f"{u},{i}\n" for u, i in draw_likes()))
    write_table(tmp_path / "users.csv", BY_USER)
    write_table(tmp_path / "items.csv", BY_ITEM)
    kinds = {"category": ("country", "town"), "categories": ("tags",), "number": ("age",)}
    users = AttributeTable(file=str(tmp_path / "users.csv"), max_missing_share=1, **kinds)
    items = AttributeTable(file=str(tmp_path / "items.csv"), category=("genre",))
    dataset = Dataset(name=home.dataset, users=users, items=items)

    def read(run_id="run"):
        ingest(home, dataset, [log], run_id)
        binarize(home, BinarizeSettings(), run_id)

    read()
    return home, read


def run_stages(home, protocol, run_id="run", settings=None, models=("popularity",), **options):
    digests = split(home, SplitSettings(**settings or {}), run_id, protocols=[protocol], seed=0).digests
    judged = []
    for name in list_splits(protocol, digests):
        common = {"protocol": name, "matrices_digest": digests[name], "seed": 0}
        fits = {
            model: train(home, run_id, model=model, settings=ESTIMATORS[model].settings, **common).digest
            for model in models
        }
        judged.append((digests[name], fits))
    (digest, first), *further = judged
    return evaluate(home, run_id, protocol, digest, first, further=further, **options)


def load_rows(home, where="true", columns=COLUMNS):
    with warehouse.open_warehouse(home, read_only=True) as connection:
        return connection.execute(f"select {columns} from evaluation.strata where {where}").fetchall()


@pytest.mark.parametrize(
    ("protocol", "folds", "compared"),
    [
        ("strong_generalization", 2, ("activity", "popularity")),
        ("leave_one_out", None, ("country", "age")),
        ("cold_items", None, ("popularity",)),
    ],
)
def test_a_run_and_the_library_have_the_same_digits(shop, protocol, folds, compared):
    home, _ = shop
    run_stages(
        home,
        protocol,
        settings={"folds": 2, "min_validation_users": 1 << 40} if folds else {},
        models=list(ESTIMATORS),
    )
    assert {row[0] for row in load_rows(home, columns="distinct strata")} == set(BY_DEFAULT)
    table = oneclass.Interactions(draw_likes(), users=pl.DataFrame(BY_USER), items=pl.DataFrame(BY_ITEM))
    for strata in compared:
        options = {"protocol": protocol, "metrics": list(METRICS), "folds": folds, "threads": 2}
        expected = oneclass.evaluate(ESTIMATORS, table, strata=strata, **options).strata.rows()
        assert len(expected) > 6
        assert sorted(map(str, load_rows(home, f"strata = '{strata}'"))) == sorted(map(str, expected))


def test_attributes_are_chosen_and_evaluations_of_other_attributes_are_not_copied(shop, tmp_path):
    home, read = shop
    for run_id, attributes in (("none", ()), ("named", ("town",))):
        run_stages(home, "leave_one_out", run_id, attributes=attributes)
        found = {name for (name,) in load_rows(home, f"run_id = '{run_id}'", "distinct strata")}
        assert found == {"activity", "popularity", *attributes}
    rows = load_rows(home, "run_id = 'named' and strata = 'town'")
    assert len({row[3] for row in rows}) == MAX_FEW_TEXTS + 2  # those without a town, too
    write_table(tmp_path / "users.csv", BY_USER | {"town": ["here"] * (USERS - 20)})
    read("moved")
    run_stages(home, "leave_one_out", "moved", attributes=("town",))
    assert {row[3] for row in load_rows(home, "run_id = 'moved' and strata = 'town'")} == {"here", None}


def test_unknown_attributes_are_refused(shop):
    home, _ = shop
    with pytest.raises(InputError, match=r"evaluate.attributes: users have no attribute size. There is country, .*age"):
        run_stages(home, "leave_one_out", attributes=("country", "size"))


def test_texts_numbers_and_lists_divide_users():
    def divided(*values, **options):
        found = divide_by_attribute(pl.Series(values, **options))
        return {stratum.name: np.flatnonzero(stratum.members).tolist() for stratum in found}

    assert divided("b", None, "a", "b") == {"a": [2], "b": [0, 3], None: [1]}
    assert divided(True, False, None) == {"false": [1], "true": [0], None: [2]}
    assert divided(["a", "b"], [], None, ["b", None]) == {"a": [0], "b": [0, 3], None: [1, 2]}
    assert divided(3, 1, None, 2) == {"low": [1], "middle": [3], "high": [0], None: [2]}
    assert divided(None, None, dtype=pl.Float64) == {None: [0, 1]}
    assert divided(None, None, dtype=pl.String) == {None: [0, 1]}
