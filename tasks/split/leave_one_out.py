"""Leave one out: of every user with two edges or more the one whose hash is lowest, and the matrices without it.

The hash is the MD5 of `<seed>:leave_one_out:<user_id>:<item_id>`, as DuckDB's `md5_number` has it, by which the contract draws
again. It is taken of every edge, which in the kernel costs a seventh of what it does there.
"""

import logging
from concurrent.futures import ThreadPoolExecutor

import duckdb
import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

import sql
from models.numerics.md5 import lowest
from models.user_blocks import cuts
from tasks.split.matrix import keep, table
from tasks.stores.matrices import Part, SplitMatrices
from tasks.stores.warehouse import select

logger = logging.getLogger(__name__)


def make(connection: duckdb.DuckDBPyConnection, everything: SplitMatrices, seed: int, threads: int) -> SplitMatrices:
    """Fill `indexed.leave_one_out`; the matrices, the users of the test part being training users.

    Args:
        everything: all edges, users and items by their indices.
    """
    edges, users = everything.train, everything.users
    drawn = draw(connection, edges, users, seed, threads)
    rows = np.flatnonzero(drawn >= 0).astype(np.int32)
    connection.execute(sql.statement("split/leave_one_out"))
    keep(connection, "leave_one_out", "leave_one_out_roles")

    degrees = np.diff(edges.indptr)
    held_out = edges.indices == np.repeat(drawn, degrees)
    ends = np.arange(len(rows) + 1, dtype=np.int64)
    targets = csr_matrix((edges.data[held_out], drawn[rows], ends), shape=(len(rows), edges.shape[1]))
    starts = np.concatenate([[0], np.cumsum(degrees - (drawn >= 0))])
    train = csr_matrix((edges.data[~held_out], edges.indices[~held_out], starts), shape=edges.shape)
    logger.info("leave_one_out, %s users, %s edges held out", f"{len(users):,}", f"{targets.nnz:,}")
    part = Part(histories=None, targets=targets, users=users[rows], rows=rows)
    return SplitMatrices("leave_one_out", train, users, everything.items, {"test": part})


def draw(
    connection: duckdb.DuckDBPyConnection, edges: csr_matrix, users: np.ndarray, seed: int, threads: int
) -> np.ndarray:
    """int32 (users,): the item of each user whose edge is left out, -1 of a user with one edge; and the table `left_out`.

    Args:
        edges: a row for each user of `indexed.users`, in the order of their indices; a column for each item's index.
    """
    stems, items = select(connection, "split/stems", seed=str(seed))["stem"], select(connection, "split/item_ids")
    sizes = np.zeros(edges.shape[1], dtype=np.int64)
    sizes[items["item_index"].to_numpy()] = items["item_id"].str.len_bytes().to_numpy()
    names = _bytes(items["item_id"]), _ends(sizes)
    starts = edges.indptr.astype(np.int64)

    def of_block(bounds: tuple[int, int]) -> np.ndarray:
        first, end = bounds
        own, texts = starts[first : end + 1] - starts[first], stems[first:end]
        members = edges.indices[starts[first] : starts[end]]
        return lowest(own, members, _bytes(texts), _ends(texts.str.len_bytes().to_numpy()), *names)

    with ThreadPoolExecutor(threads) as workers:
        drawn = np.concatenate(list(workers.map(of_block, cuts(starts, threads))))
    drawn[np.diff(starts) < 2] = -1
    left_out = {"user_index": users[drawn >= 0], "item_index": drawn[drawn >= 0]}
    table(connection, "left_out", pl.DataFrame(left_out))
    return drawn


def _bytes(texts: pl.Series) -> np.ndarray:
    return np.frombuffer("".join(texts).encode(), dtype=np.uint8)


def _ends(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
