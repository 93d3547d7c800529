"""The protocol cold_items: its draw, the features of its items, and its metrics, against a recount in plain Python."""

import shutil
from collections import Counter, defaultdict

import numpy as np
import pytest

from oneclass.models.evaluation.ranks_apart import OF_NEW_ITEMS
from oneclass.models.registry import MODELS
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.datasets.columns import AttributeTable
from oneclass.tasks.errors import InputError
from oneclass.tasks.evaluate import evaluate
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import SplitPlan, split
from oneclass.tasks.stores import fits, matrices
from tests.conftest import home_in, load_entries, load_ids, query_rows
from tests.tasks.conftest import md5_number, train_model

USERS, ITEMS, SEED = 90, 60, 3


def draw_log():
    """Users who like the items of one genre; some with a single like."""
    random = np.random.default_rng(0)
    return sorted(
        {
            (f"u{user}", f"i{int(random.integers(ITEMS // 3)) * 3 + user % 3}")
            for user in range(USERS)
            for _ in range(1 if user % 4 == 0 else 14)
        }
    )


def is_drawn(text):
    return md5_number(text) % 1000000007 / 1000000007 < 0.1


def expected_roles(pairs):
    roles = {}
    for user, item in pairs:
        is_new, held_out = is_drawn(f"{SEED}:cold_item:{item}"), is_drawn(f"{SEED}:cold_edge:{user}:{item}")
        roles[user, item] = "new" if is_new else "held_out" if held_out else "train"
    trained = {user for (user, _), role in roles.items() if role == "train"}
    return {pair: role if pair[0] in trained else "dropped" for pair, role in roles.items()}


@pytest.fixture(scope="module")
def binarized(tmp_path_factory):
    """(home, likes) of a log whose items have a table."""
    tmp_path = tmp_path_factory.mktemp("binarized")
    home, pairs = home_in(tmp_path), draw_log()
    (log := tmp_path / "log.csv").write_text("user_id,item_id\n" + "".join(f"{user},{item}\n" for user, item in pairs))
    genres = "".join(f"i{item},g{item % 3},{item % 7}\n" for item in range(ITEMS) if item != 8)
    (tmp_path / "items.csv").write_text(f"item_id,genre,price\n{genres}")
    items = AttributeTable(file=str(tmp_path / "items.csv"), category=("genre",), number=("price",))
    ingest(home, Dataset(name=home.dataset, items=items), [log], "run")
    binarize(home, BinarizeSettings(), "run")
    return home, pairs


@pytest.fixture
def shop(home, binarized):
    """The likes of the log that the test's home has."""
    shutil.copytree(binarized[0].root, home.root)
    return binarized[1]


def make_split(home, run_id="run", protocols=("cold_items",)):
    return split(home, run_id, SplitPlan(SplitSettings(), protocols, seed=SEED)).digests


def test_roles_and_matrices_are_those_of_the_hashes(home, shop):
    stored, expected = matrices.load_split(home, make_split(home)["cold_items"]), expected_roles(shop)
    assert {(user, item): role for user, item, role in query_rows(home, "from splits.cold_items")} == expected
    assert set(expected.values()) == {"train", "held_out", "new", "dropped"}
    items, part = load_ids(home, "item"), stored.parts["test"]
    for matrix, of_rows, roles in (
        (stored.train, stored.users, {"train"}),
        (part.targets, part.users, {"held_out", "new"}),
    ):
        found = load_entries(home, matrix, of_rows, stored.items)
        assert found.keys() == {pair for pair, role in expected.items() if role in roles}
    assert {items[column] for column in part.new_items} == {
        item for (_, item), role in expected.items() if role == "new"
    }
    assert not stored.train[:, part.new_items].nnz


def test_metrics_are_those_of_a_recount(home, shop):
    """The models' scores, ranked by sorting in plain Python: new items among new ones, known among known ones."""
    digest = make_split(home)["cold_items"]
    stored, digests = matrices.load_split(home, digest), {}
    part = stored.parts["test"]
    for model in ("popularity", "wmf", "mrf_dense"):
        settings = MODELS[model].Settings(**({"factors": 8} if model == "wmf" else {}))
        digests[model] = train_model(home, digest, model, settings, protocol="cold_items").digest
    evaluated = evaluate(home, "run", "cold_items", [(digest, digests)])
    assert evaluated.users == len(part.users) and not evaluated.failed
    table = {
        (model, metric): (value, users)
        for model, metric, value, users in query_rows(
            home, "select model, metric, value, users from evaluation.metrics"
        )
    }
    for model, of_fit in digests.items():
        fitted, expected = fits.load_fit(home, model, of_fit), defaultdict(list)
        scores = fitted.scores(part.histories, users=part.rows)
        for row in range(len(part.users)):
            own, wanted = set(part.histories[row].indices), set(part.targets[row].indices)
            for suffix, candidates in (
                ("_new_items", set(part.new_items)),
                ("", set(range(ITEMS)) - set(part.new_items)),
            ):
                ranking = sorted(candidates - own, key=lambda column: (-scores[row, column], column))
                places = [place for place, column in enumerate(ranking) if column in wanted]
                if places:
                    ideal = sum(1 / np.log2(place + 2) for place in range(len(places)))
                    expected[f"ndcg@100{suffix}"].append(sum(1 / np.log2(place + 2) for place in places) / ideal)
                    expected[f"recall@20{suffix}"].append(sum(place < 20 for place in places) / min(20, len(places)))
        for metric, of_users in expected.items():
            assert table[model, metric] == (pytest.approx(np.mean(of_users)), len(of_users)), (model, metric)
    assert {metric for model, metric in table if model == "wmf"} >= OF_NEW_ITEMS.keys()
    assert table["wmf", "ndcg@100_new_items"][0] > table["popularity", "ndcg@100_new_items"][0] + 0.2
    compared = Counter(metric for (metric,) in query_rows(home, "select metric from evaluation.comparisons"))
    assert compared["ndcg@100_new_items"] == compared["ndcg@100"] == 3


def test_without_attributes_the_protocol_says_what_to_write(home, log_events):
    log_events([(user, item, 1, None) for user, item in draw_log()])
    binarize(home, BinarizeSettings(), "run")
    with pytest.raises(InputError, match=r"protocol cold_items: needs attributes of items.*under \[items\]"):
        make_split(home)


def test_without_a_new_item_nothing_is_evaluated(home, tmp_path, caplog):
    items = [f"i{item}" for item in range(ITEMS) if not is_drawn(f"{SEED}:cold_item:i{item}")][:5]
    log, table = tmp_path / "log.csv", tmp_path / "items.csv"
    log.write_text("user_id,item_id\n" + "".join(f"{user},{item}\n" for user in range(20) for item in items))
    table.write_text("item_id,genre\n" + "".join(f"{item},g\n" for item in items))
    attributes = AttributeTable(file=str(table), category=("genre",))
    ingest(home, Dataset(name=home.dataset, items=attributes), [log], "run")
    binarize(home, BinarizeSettings(), "run")
    digest = make_split(home)["cold_items"]
    assert matrices.load_split(home, digest).parts["test"].targets.nnz
    fit = train_model(home, digest, "popularity", protocol="cold_items").digest
    assert evaluate(home, "run", "cold_items", [(digest, {"popularity": fit})]).users == 0
    assert "cold_items: no test user has anything to be found" in caplog.text
    assert not query_rows(home, "select * from evaluation.metrics")
