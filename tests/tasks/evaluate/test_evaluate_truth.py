"""`like` against the demo's truth, on a small demo from its log to the warehouse's rows."""

import duckdb
import numpy as np
import pytest

from oneclass.models.random_graph.model import RandomGraph, RandomGraphSettings
from oneclass.tasks.binarize import BinarizeSettings, binarize
from oneclass.tasks.datasets import load_dataset
from oneclass.tasks.demo.story import DemoSettings, make_demo
from oneclass.tasks.evaluate import calibration as evaluate_like
from oneclass.tasks.evaluate import calibration as evaluate_truth
from oneclass.tasks.ingest import ingest
from oneclass.tasks.split import SplitSettings, split
from oneclass.tasks.stores import matrices
from oneclass.tasks.stores.home import Home, Limits

DEMO = DemoSettings(users=300, items=200, likes=9_000)


def prepared(home, threshold):
    """The split leave_one_out of a demo's log."""
    logs = make_demo(home, DEMO, 3)
    dataset = load_dataset("demo", home.root)
    ingest(home, dataset, logs, "run")
    binarize(home, BinarizeSettings(threshold=threshold), "run")
    made = split(home, SplitSettings(), "run", protocols=["leave_one_out"], seed=0, ids_are_numbers=True)
    return matrices.load_split(home, made.digests["leave_one_out"])


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return Home(tmp_path_factory.mktemp("truth"), "demo", Limits(threads=2, memory=1 << 30))


@pytest.fixture(scope="module")
def whole(home):
    return prepared(home, 4)


@pytest.fixture(scope="module")
def truth(home, whole):
    return evaluate_truth.load_truth(home, whole)


def test_the_truth_stands_in_the_order_of_the_split(home, whole, truth):
    """Coins of the likes, and degrees in the hidden graph, by the ids that the log gave."""
    with duckdb.connect(str(home.warehouse), read_only=True) as connection:
        query = "select distinct user_index, user_id::int from curated.interactions"
        users = dict(connection.execute(query).fetchall())
        query = "select distinct item_index, item_id::int from curated.interactions"
        items = dict(connection.execute(query).fetchall())
        edges = connection.execute(
            'select "user", item, probability from read_parquet(?)', [str(home.truth / "edges.parquet")]
        ).fetchall()
    coins = {(user, item): probability for user, item, probability in edges}
    found = truth.coins(np.arange(20))
    checked = 0
    for row in range(20):
        for column in range(len(whole.items)):
            pair = users[whole.users[row]], items[whole.items[column]]
            if pair in coins:
                assert found[row, column] == pytest.approx(coins[pair], abs=1e-5)
                checked += 1
    assert checked > 100
    degrees = np.bincount([user for user, _, _ in edges], minlength=DEMO.users + 1)
    order = np.argsort(truth.user_odds)
    assert (np.diff(degrees[[users[whole.users[row]] for row in order]]) >= 0).all()


def test_the_sample_comes_true_at_the_true_ratio(whole, truth):
    """Whatever the model: likes among the pairs of a bin are as many as the true ratio says."""
    model = RandomGraph(RandomGraphSettings(factors=2, iterations=3)).fit(whole.train)
    part, law = whole.parts["test"], model.negative_distribution()
    of_part, everybody = truth.of_users(part.rows), np.ones(len(part.users), dtype=bool)
    found = evaluate_like.evaluate_like(
        "any", evaluate_like.sample_likes(model, law, whole.train, part, of_part, everybody)
    )
    bins = {kind: {one.low: one for name, one in found.calibration if name == kind}
            for kind in ("sampled_negatives", "density_ratio", "coin")}  # fmt: skip
    assert bins["sampled_negatives"].keys() == bins["density_ratio"].keys() == bins["coin"].keys()
    pairs = sum(one.pairs for one in bins["coin"].values())
    assert pairs == 2 * whole.parts["test"].targets.nnz
    for low, sampled in bins["sampled_negatives"].items():
        if sampled.standard_error:
            true = bins["density_ratio"][low].observed
            assert abs(sampled.observed - true) < 4 * sampled.standard_error + 0.03


def test_likes_that_are_not_the_demos_have_no_truth(home, tmp_path):
    other = Home(tmp_path, "demo", Limits(threads=2, memory=1 << 30))
    assert evaluate_truth.load_truth(other, None) is None
    assert evaluate_truth.load_truth(other, prepared(other, 3)) is None
