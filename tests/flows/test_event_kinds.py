"""A log with kinds of events, from its file to recommendations by the commands."""

import random
from datetime import datetime, timedelta

import duckdb
import pytest

from oneclass.flows import commands

TOML = """
[columns]
event = ["what"]
[events]
purchase = 4
cart = 1.5
view = 0.25
return = -4
[binarize]
threshold = 1
half_life_days = 60
"""


@pytest.fixture
def shop(tmp_path):
    """40 people of two tastes look at, buy and return 40 things; the home declares what each kind adds."""
    rng = random.Random(5)
    lines = ["user,item,what,time"]
    for _ in range(1600):
        user, item = rng.randrange(40), rng.randrange(40)
        kinds, shares = ["purchase", "cart", "view", "return"], [4, 4, 2, 1] if user % 2 == item % 2 else [0, 0, 2, 0]
        (kind,) = rng.choices(kinds, shares)
        lines.append(f"u{user},i{item},{kind},{datetime(2026, 1, 1) + timedelta(hours=rng.randrange(2000))}")
    (tmp_path / "orders.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "shop.toml").write_text(TOML)
    return tmp_path


@pytest.mark.slow
def test_kinds_of_events_go_from_the_file_to_recommendations(shop, prefect_server):
    arguments = ["--dataset", "shop", "--home", str(shop), "--source", str(shop / "orders.csv")]
    models = ["--models", "popularity,wmf,hpf,graph_filter", "--threads", "2"]
    settings = [
        "--set",
        "train.tune=off",
        "publish.model=wmf",
        "wmf.iterations=4",
        "hpf.max_iterations=20",
    ]
    assert commands.main("backfill", [*arguments, *models, "--protocols", "next_events", *settings]) == 0
    with duckdb.connect(str(shop / "shop" / "warehouse.duckdb"), read_only=True) as connection:
        sizes = "select count(*), min(weight), max(event_count) from curated.interactions"
        edges = connection.execute(sizes).fetchone()
        assert edges[0] > 100 and edges[1] >= 1 and edges[2] > 3
        ranked = connection.execute(
            "select avg((user_id[2:]::int % 2 = item_id[2:]::int % 2)::int) from published.recommendations "
            "where rank = 1"
        ).fetchone()
        models = connection.execute("select count(distinct model) from evaluation.metrics").fetchone()
    assert ranked[0] > 0.5 and models == (4,)
