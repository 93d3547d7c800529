"""The diagnose stage on small curated tables, and what published lists found, against a loop over users."""

import json
import math
from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.degrees.distributions import power_law_with_mean
from oneclass.models.generator.hidden_graph import draw_graph
from oneclass.models.negatives.sampling import degree_histogram, histogram_power
from oneclass.models.numerics.adjacency import copy_pattern
from oneclass.models.random_graph.inference import GraphSampler
from oneclass.tasks.diagnose import diagnose, record_list_hits, rewrite_diagnostics, store_hidden_graph_ratios
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home
from tests.conftest import query_rows, write_tables


def fill_interactions(home, edges):
    rows = pl.DataFrame(edges, {"user_index": pl.Int32, "item_index": pl.Int32}, orient="row")
    write_tables(home)
    with warehouse.open_warehouse(home) as connection:
        for side in ("user", "item"):
            index = pl.col(f"{side}_index").unique().sort()
            ids = index.cast(pl.String).alias(f"{side}_id")
            warehouse.insert(connection, f"indexed.{side}s", rows.select(index, ids))
        numbered = rows.with_columns(event_count=1, first_file_id=1, first_line=pl.int_range(1, pl.len() + 1))
        warehouse.insert(connection, "indexed.interactions", numbered)


def test_degrees_are_counted_on_both_sides_and_hidden_graphs_are_those_of_the_model(home):
    """Counted from the model's own sampler, which knows nothing of the warehouse."""
    laws = power_law_with_mean(12, 0.5, 150), power_law_with_mean(32, 0.77, 400)
    starts, users = draw_graph(*laws, (400, 150), 2)
    items = np.repeat(np.arange(150), np.diff(starts))
    fill_interactions(home, list(zip(users.tolist(), items.tolist(), strict=True)))
    diagnose(home, "run", 7)
    for side, of in (("user", users), ("item", items)):
        degrees, vertices = np.unique(np.bincount(of), return_counts=True)
        query = "select degree, vertices from diagnostics.degrees where side = ? order by degree"
        assert query_rows(home, query, side) == list(zip(degrees.tolist(), vertices.tolist(), strict=True))
    edges = csr_matrix((np.ones(len(users)), (users, items)), shape=(400, 150))
    degrees = np.bincount(items, minlength=150)
    weights = degree_histogram(degrees, histogram_power(0.5, degrees.max()))
    _, negatives = GraphSampler(copy_pattern(edges), weights, 7, np.arange(400, dtype=np.uint64)).negatives(0)
    query = "select negatives from diagnostics.hidden_graph_ratios where r = 0.5 order by item_index"
    assert [count for (count,) in query_rows(home, query)] == np.bincount(negatives, minlength=150).tolist()


EDGES = {
    "no edge": [], "one edge": [(0, 0)], "one user": [(0, 0), (0, 1), (0, 2)], "all equal": [(0, 0), (1, 1)],
    "complete": [(user, item) for user in range(5) for item in range(4)],
}  # fmt: skip


@pytest.mark.parametrize("edges", EDGES.values(), ids=EDGES)
def test_degenerate_graphs(home, edges):
    fill_interactions(home, edges)
    with warehouse.open_warehouse(home) as connection:
        users, items = rewrite_diagnostics(connection, 0, replicates=9)
        store_hidden_graph_ratios(connection, (users, items), 0)
    fits = query_rows(home, "from diagnostics.power_law_fits")
    assert len(fits) == (8 if edges else 0)
    assert np.isfinite([value for row in fits for value in row if isinstance(value, float)]).all()
    query = "select r, count(*), sum(positives) from diagnostics.hidden_graph_ratios group by r order by r"
    sampled = query_rows(home, query)
    assert sampled == [(r, items, len(edges)) for r in (0.5, 1)] * bool(edges)


MADE = datetime(2026, 11, 20, 3)
K, ITEMS, USERS = 4, 12, 25
COLUMNS = (
    "run_id, length, users, likes, hits, recall, recall_error, ndcg, ndcg_error, popularity_recall, popularity_ndcg"
)


def draw_edges(seed: int, *, seen: bool) -> tuple[list[tuple], dict[int, list[int]]]:
    """Edges as (user, item, is new, is taken later), of some users none of them new, and the lists of all but three."""
    random = np.random.default_rng(seed)
    edges, lists = [], {}
    for user in range(USERS):
        liked = random.permutation(ITEMS)[: random.integers(2, 8)].tolist()
        fresh = int(random.integers(0, 3))
        edges += [(user, item, at < fresh, at < fresh or random.random() < 0.2) for at, item in enumerate(liked)]
        known = liked[fresh:]
        if user > 2:
            lists[user] = random.permutation([item for item in range(ITEMS) if seen or item not in known])[:K].tolist()
    return edges, lists


def count_hits_naively(edges: list[tuple], lists: dict[int, list[int]], *, seen: bool) -> tuple:
    likes = [sum(item == liked and not fresh for _, liked, fresh, _ in edges) for item in range(ITEMS)]
    figures, targets, hits = [], 0, 0
    for user, shown in lists.items():
        new = {item for one, item, fresh, taken in edges if one == user and (taken if seen else fresh)}
        known = {item for one, item, fresh, _ in edges if one == user and not fresh and not seen}
        popular = [
            item for item in sorted(range(ITEMS), key=lambda n: (-likes[n], n)) if likes[item] and item not in known
        ]
        if new:
            most = min(K, len(new))
            ideal = sum(1 / math.log2(place + 2) for place in range(most))
            row = []
            for listed in (shown, popular[:K]):
                row += [len(new & set(listed)) / most]
                row += [sum(1 / math.log2(place + 2) for place, item in enumerate(listed) if item in new) / ideal]
            figures.append(row)
            targets, hits = targets + len(new), hits + len(new & set(shown))
    values = np.array(figures)
    means, errors = values.mean(axis=0), values.std(axis=0) / np.sqrt(len(values))
    return (K, len(values), targets, hits, means[0], errors[0], means[1], errors[1], means[2], means[3])


def fill_warehouse(home: Home, edges: list[tuple], lists: dict[int, list[int]], *, until: bool, seen: bool) -> None:
    """A warehouse in which `made` published the lists and `tonight` runs; new are later days, or the second log's."""
    settings = json.dumps({"seen_items": "include" if seen else "exclude"} | ({"until": "2026-11-19"} if until else {}))
    days = {"earlier": -1, "made": 0, "tonight": 1}
    rows = {
        "operations.log_files (file_id, path, sha256, bytes, events, rejects, ingested_at)": [
            (1, "1.csv", "1", 1, 1, 0, MADE + timedelta(minutes=1)),  # by `made`
            (2, "2.csv", "2", 1, 1, 0, MADE + timedelta(hours=9)),
        ],
        "operations.runs (run_id, flow, dataset, started_at, state, settings, code_version)": [
            (run, "nightly", "small", MADE + timedelta(days=day), "completed", settings, "1")
            for run, day in days.items()
        ],
        "operations.promotions (run_id, decided_at, challenger, margin, promoted, reason)": [
            (run, MADE + timedelta(minutes=5), "wmf/score", 1, run != "tonight", "") for run in days
        ],
        "indexed.users (user_index, user_id)": [(number, f"u{number}") for number in range(USERS)],
        "indexed.items (item_index, item_id)": [(number, f"i{number}") for number in range(ITEMS)],
        "published.recommendations (user_id, item_id, rank, score)": [
            (f"u{user}", f"i{item}", rank, 0) for user, shown in lists.items() for rank, item in enumerate(shown, 1)
        ],
        "indexed.interactions": (interactions := []),
        "raw.events": (events := []),
    }
    for user, item, fresh, taken in edges:
        last = MADE.replace(hour=0) + timedelta(days=0 if taken else -1)
        first = MADE - timedelta(days=900) if not until else last if fresh else last - timedelta(days=9)
        interactions.append((user, item, 1, first, last, 1 if until else 1 + fresh, 1, None))
        events.append((f"u{user}", f"i{item}", 1, last, 1 if until else 1 + taken, 1, None))
    with warehouse.open_warehouse(home) as connection:
        for table, of_table in rows.items():
            connection.executemany(f"insert into {table} values ({', '.join('?' * len(of_table[0]))})", of_table)


@pytest.mark.parametrize("seen", [False, True], ids=["new items alone", "seen items too"])
@pytest.mark.parametrize("until", [False, True], ids=["logs that came later", "events of later days"])
def test_hits_are_those_of_likes_that_came_after_the_lists(home, until, seen):
    edges, lists = draw_edges(seed=3 + until, seen=seen)
    fill_warehouse(home, edges, lists, until=until, seen=seen)
    with warehouse.open_warehouse(home) as connection:
        for _ in range(2):  # the second record replaces the first
            record_list_hits(connection, "tonight")
        [(run, *found)] = connection.execute(f"select {COLUMNS} from diagnostics.list_hits").fetchall()
    assert run == "made" and found == pytest.approx(count_hits_naively(edges, lists, seen=seen)) and found[3] > 0
