"""Stage `diagnose`: degrees of the observed graph, fitted degree distributions, and sampled hidden graphs.

Distributions are fitted on the bounded support of degrees: from the smallest observed degree, 1 unless a filter raised
it, to the size of the other side. The contract of `diagnostics.power_law_fits` says what each family's numbers mean.

A p-value is the share of samples, drawn from the fitted distribution and each refitted, with a KS distance to their fit
of at least that of the real degrees: small if the distribution is wrong. Its resolution is 1 / 100. If all degrees of a
side are equal, every family fits perfectly in a limit: exponent, cutoff and p_value are NULL.

`diagnostics.hidden_graph_ratios` has one sample of q(H) per rate r of eq. 8, as in Figure 3 of Paquet and Koenigstein
(2014): an item's edges in the observed graph (positives), and the sampled ones (negatives).
"""

import logging
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from oneclass import sql
from oneclass.models.degrees.distributions import FAMILIES
from oneclass.models.degrees.fits import BOOTSTRAP_REPLICATES, fit_family
from oneclass.models.negatives.sampling import build_alias_table, degree_histogram, draw_negatives, histogram_power
from oneclass.models.numerics.adjacency import copy_pattern, partition_shards
from oneclass.tasks.orchestration.stage_task import stage_task
from oneclass.tasks.stores import stages, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.stages import StageCache
from oneclass.tasks.stores.warehouse import table_digest

logger = logging.getLogger(__name__)

NEGATIVE_RATES = (1.0, 0.5)  # the two values of r (eq. 8) in the figure
TABLES = ("diagnostics.degrees", "diagnostics.power_law_fits", "diagnostics.hidden_graph_ratios")


def diagnose(home: Home, run_id: str, seed: int) -> None:
    """Rewrite the tables of `diagnostics` from `curated.interactions`, unless its edges are unchanged.

    Args:
        seed: for the bootstrap behind the p-values, and for the hidden graphs.

    Raises:
        ContractBroken: the tables broke their contract and were rolled back.
    """
    with stages.run_stage(home, run_id, "diagnose") as connection:
        reads = table_digest(connection, "indexed.interactions")
        cache = StageCache(
            connection, "diagnose", [Path(__file__)], reads=reads, parameters={"seed": seed}, tables=TABLES
        )
        if cache.lookup() is None:
            shape = rewrite_diagnostics(connection, seed)
            store_hidden_graph_ratios(connection, shape, seed)
            cache.store({})
        record_list_hits(connection, run_id)


def record_list_hits(connection: duckdb.DuckDBPyConnection, run_id: str) -> None:
    """Record what the lists that stand as published have found so far of the likes that came in after they were made.

    It is called before a run replaces them, so that the last record is over the whole time that they stood.
    """
    connection.execute(
        "delete from diagnostics.list_hits where run_id = (select run_id from operations.promotions "
        "where promoted order by rowid desc limit 1)"
    )
    connection.execute(sql.statement("diagnose/list_hits"), {"run_id": run_id})


def rewrite_diagnostics(
    connection: duckdb.DuckDBPyConnection, seed: int, replicates: int = BOOTSTRAP_REPLICATES
) -> tuple[int, int]:
    """Rewrite the degrees and the fitted distributions on an open connection; return the number of users and items."""
    connection.execute("delete from diagnostics.degrees")
    connection.execute("delete from diagnostics.power_law_fits")
    connection.execute(sql.statement("diagnose/degrees"))
    # one row: users, items and edges of the observed graph
    counts = "select count(distinct user_index), count(distinct item_index), count(*) from indexed.interactions"
    users, items, edges = warehouse.fetch_row(connection, counts)
    means = edges / max(1, users), edges / max(1, items)
    logger.info("a user likes %.1f items on average (mu), an item is liked by %.1f users (nu)", *means)
    fits = []
    for side, d_max in (("user", items), ("item", users)):
        # one row per degree that occurs on one side: how many of its vertices have it
        text = "select degree, vertices from diagnostics.degrees where side = $side order by degree"
        degrees, vertices = (column.to_numpy() for column in warehouse.query(connection, text, side=side))
        for family in FAMILIES if len(degrees) else ():
            fits.append({"side": side, **vars(fit_family(family, degrees, vertices, d_max, seed, replicates))})
    warehouse.insert(connection, "diagnostics.power_law_fits", pl.DataFrame(fits, infer_schema_length=None))
    return users, items


def store_hidden_graph_ratios(connection: duckdb.DuckDBPyConnection, shape: tuple[int, int], seed: int) -> None:
    """Rewrite `diagnostics.hidden_graph_ratios`, by the number of users and items, on an open connection."""
    connection.execute("delete from diagnostics.hidden_graph_ratios")
    if not min(shape):
        return
    edges = connection.execute("select user_index, item_index from indexed.interactions").fetchnumpy()
    users, items = (np.ma.getdata(column) for column in edges.values())
    likes = copy_pattern(csr_matrix((np.ones(len(users), dtype=bool), (users, items)), shape=shape))
    positives, units = np.bincount(items, minlength=shape[1]), np.arange(shape[0], dtype=np.uint64)
    del edges, users, items
    for r in NEGATIVE_RATES:
        weights = degree_histogram(positives, histogram_power(r, int(positives.max())))
        drawn = build_alias_table(weights), partition_shards(likes[0]), (seed, 0), units
        negatives = np.bincount(draw_negatives(likes, weights, *drawn)[1], minlength=shape[1])
        items = np.arange(shape[1], dtype=np.int32)
        rows = pl.DataFrame({"r": r, "item_index": items, "positives": positives, "negatives": negatives})
        warehouse.insert(connection, "diagnostics.hidden_graph_ratios", rows)


diagnose_task = stage_task(diagnose)
