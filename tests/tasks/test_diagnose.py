"""The diagnose stage on small curated tables."""

import numpy as np
import pyarrow as pa
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.degrees.distributions import power_law_with_mean
from oneclass.models.generator.hidden_graph import draw_graph
from oneclass.models.negatives.sampling import degree_histogram, histogram_power
from oneclass.models.numerics.adjacency import copy_pattern
from oneclass.models.random_graph.inference import GraphSampler
from oneclass.tasks.diagnose import diagnose, rewrite_diagnostics, store_hidden_graph_ratios
from oneclass.tasks.stores import warehouse
from tests.conftest import query_rows, write_tables


def fill_interactions(home, edges):
    """Fill `indexed.interactions` with (user_index, item_index) pairs."""
    users, items = (pa.array(column, pa.int32()) for column in zip(*edges, strict=True)) if edges else ([], [])
    incoming = pa.table({"u": pa.array(users, pa.int32()), "i": pa.array(items, pa.int32())})
    write_tables(home)
    with warehouse.open_warehouse(home) as connection:
        connection.register("incoming", incoming)
        for table in ("users", "items", "interactions"):
            connection.execute(f"delete from indexed.{table}")
        connection.execute("insert into indexed.users select distinct u, u::varchar from incoming")
        connection.execute("insert into indexed.items select distinct i, i::varchar from incoming")
        connection.execute(
            "insert into indexed.interactions select u, i, 1, null, null, 1, row_number() over (), null from incoming"
        )
        connection.unregister("incoming")


FITS = "select * from diagnostics.power_law_fits order by side, family"


@pytest.fixture
def graph(home):
    users, items = power_law_with_mean(12, 0.5, 150), power_law_with_mean(32, 0.77, 400)
    starts, owners = draw_graph(users, items, (400, 150), 2)
    edges = list(zip(owners.tolist(), np.repeat(np.arange(150), np.diff(starts)).tolist(), strict=True))
    fill_interactions(home, edges)
    return edges


def test_degrees_are_counted_on_both_sides(home, graph):
    diagnose(home, "run", 0)
    for side, of in (("user", 0), ("item", 1)):
        degrees, vertices = np.unique(np.bincount([edge[of] for edge in graph]), return_counts=True)
        found = query_rows(
            home, f"select degree, vertices from diagnostics.degrees where side = '{side}' order by degree"
        )
        assert found == list(zip(degrees.tolist(), vertices.tolist(), strict=True))


def test_the_hidden_graphs_are_those_of_the_model(home, graph):
    """Counted from the model's own sampler, which knows nothing of the warehouse."""
    diagnose(home, "run", 7)
    users, items = zip(*graph, strict=True)
    edges = csr_matrix((np.ones(len(graph)), (users, items)), shape=(400, 150))
    degrees = np.bincount(items, minlength=150)
    weights = degree_histogram(degrees, histogram_power(0.5, degrees.max()))
    _, negatives = GraphSampler(copy_pattern(edges), weights, 7, np.arange(400, dtype=np.uint64)).negatives(0)
    query = "select negatives from diagnostics.hidden_graph_ratios where r = 0.5 order by item_index"
    assert [count for (count,) in query_rows(home, query)] == np.bincount(negatives, minlength=150).tolist()


@pytest.mark.parametrize("edges", [
    [], [(0, 0)], [(0, 0), (0, 1), (0, 2)], [(0, 0), (1, 1)], [(0, 0), (0, 1), (1, 0)],
    [(u, i) for u in range(5) for i in range(4)],
], ids=["no edge", "one edge", "one user", "all equal", "two users", "complete"])  # fmt: skip
def test_degenerate_graphs(home, edges):
    fill_interactions(home, edges)
    with warehouse.open_warehouse(home) as connection:
        users, items = rewrite_diagnostics(connection, 0, replicates=9)
        store_hidden_graph_ratios(connection, (users, items), 0)
    fits = query_rows(home, FITS)
    assert len(fits) == (8 if edges else 0)
    assert np.isfinite([value for row in fits for value in row if isinstance(value, float)]).all()
    query = "select r, count(*), sum(positives) from diagnostics.hidden_graph_ratios group by r order by r"
    sampled = query_rows(home, query)
    assert sampled == [(r, items, len(edges)) for r in (0.5, 1)] * bool(edges)
