"""The protocol cold_items: its draw, the features of its items, and its metrics, against a recount in plain Python."""

import shutil
from collections import Counter, defaultdict

import numpy as np
import pytest

from oneclass.models.evaluation.ranks_apart import OF_NEW_ITEMS
from oneclass.models.registry import MODELS
from oneclass.tasks.errors import InputError
from oneclass.tasks.evaluate.stage import evaluate
from oneclass.tasks.stores import fits, matrices
from tests.conftest import home_in, load_entries, load_ids, query_rows
from tests.models.evaluation.test_metrics import compute_naively
from tests.tasks.conftest import ingest_with_items, md5_number, split_likes, train_model

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
    log = "user_id,item_id\n" + "".join(f"{user},{item}\n" for user, item in pairs)
    genres = "".join(f"i{item},g{item % 3},{item % 7}\n" for item in range(ITEMS) if item != 8)
    kinds = {"category": ("genre",), "number": ("price",)}
    ingest_with_items(home, tmp_path, log, f"item_id,genre,price\n{genres}", **kinds)
    return home, pairs


@pytest.fixture
def shop(home, binarized):
    """The likes of the log that the test's home has."""
    shutil.copytree(binarized[0].root, home.root)
    return binarized[1]


def test_roles_and_matrices_are_those_of_the_hashes(home, shop):
    stored, expected = (
        matrices.load_split(home, split_likes(home, "cold_items", seed=SEED)["cold_items"]),
        expected_roles(shop),
    )
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
    digest = split_likes(home, "cold_items", seed=SEED)["cold_items"]
    stored, digests = matrices.load_split(home, digest), {}
    part = stored.parts["test"]
    for model in ("popularity", "wmf", "mrf_dense"):
        settings = MODELS[model].Settings(**({"factors": 8} if model == "wmf" else {}))
        digests[model] = train_model(home, digest, model, settings, protocol="cold_items").digest
    evaluated = evaluate(home, "run", "cold_items", [(digest, digests)])
    assert evaluated.users == len(part.users) and not evaluated.failed
    query = "select model, metric, value, users from evaluation.metrics"
    table = {(model, metric): rest for model, metric, *rest in query_rows(home, query)}
    is_new = np.isin(np.arange(ITEMS), part.new_items)
    for model, of_fit in digests.items():
        fitted, expected = fits.load_fit(home, model, of_fit), defaultdict(list)
        scores = fitted.scores(part.histories, users=part.rows)
        for row, (own, wanted) in enumerate(zip(part.histories.toarray() > 0, part.targets.toarray() > 0, strict=True)):
            for suffix, candidates in (("_new_items", is_new), ("", ~is_new)):
                if (wanted & candidates).any():
                    found = compute_naively(scores[row], own | ~candidates, wanted & candidates)
                    for metric in OF_NEW_ITEMS.values():
                        expected[f"{metric}{suffix}"].append(found[metric])
        for metric, of_users in expected.items():
            assert table[model, metric] == [pytest.approx(np.mean(of_users)), len(of_users)], (model, metric)
    assert {metric for model, metric in table if model == "wmf"} >= OF_NEW_ITEMS.keys()
    assert table["wmf", "ndcg@100_new_items"][0] > table["popularity", "ndcg@100_new_items"][0] + 0.2
    compared = Counter(metric for (metric,) in query_rows(home, "select metric from evaluation.comparisons"))
    assert compared["ndcg@100_new_items"] == compared["ndcg@100"] == 3


def test_without_attributes_the_protocol_says_what_to_write(home, log_events):
    log_events([(user, item, 1, None) for user, item in draw_log()])
    with pytest.raises(InputError, match=r"protocol cold_items: needs attributes of items.*under \[items\]"):
        split_likes(home, "cold_items", seed=SEED)


def test_without_a_new_item_nothing_is_evaluated(home, tmp_path, caplog):
    items = [f"i{item}" for item in range(ITEMS) if not is_drawn(f"{SEED}:cold_item:i{item}")][:5]
    log = "user_id,item_id\n" + "".join(f"{user},{item}\n" for user in range(20) for item in items)
    genres = "item_id,genre\n" + "".join(f"{item},g\n" for item in items)
    ingest_with_items(home, tmp_path, log, genres, category=("genre",))
    digest = split_likes(home, "cold_items", seed=SEED)["cold_items"]
    assert matrices.load_split(home, digest).parts["test"].targets.nnz
    fit = train_model(home, digest, "popularity", protocol="cold_items").digest
    assert evaluate(home, "run", "cold_items", [(digest, {"popularity": fit})]).users == 0
    assert "cold_items: no test user has anything to be found" in caplog.text
    assert not query_rows(home, "select * from evaluation.metrics")
