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
    drawn = _drawn(connection, edges, users, seed, threads)
    rows = np.flatnonzero(drawn >= 0).astype(np.int32)
    left_out = {"user_index": users[rows], "item_index": drawn[rows]}
    table(connection, "left_out", pl.DataFrame(left_out))
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


def _drawn(
    connection: duckdb.DuckDBPyConnection, edges: csr_matrix, users: np.ndarray, seed: int, threads: int
) -> np.ndarray:
    """int32 (users,): the item of each user whose edge is left out, -1 of a user with one edge."""
    stems = select(connection, "split/stems", seed=str(seed))["stem"][users]
    names = _texts(select(connection, "split/item_ids")["item_id"])
    starts = edges.indptr.astype(np.int64)

    def of_block(bounds: tuple[int, int]) -> np.ndarray:
        first, end = bounds
        own = starts[first : end + 1] - starts[first]
        return lowest(own, edges.indices[starts[first] : starts[end]], *_texts(stems[first:end]), *names)

    with ThreadPoolExecutor(threads) as workers:
        drawn = np.concatenate(list(workers.map(of_block, cuts(starts, threads))))
    drawn[np.diff(starts) < 2] = -1
    return drawn


def _texts(texts: pl.Series) -> tuple[np.ndarray, np.ndarray]:
    """uint8, the UTF-8 bytes of all texts; int64 (texts + 1,), 0 and where each ends."""
    ends = np.concatenate([[0], np.cumsum(texts.str.len_bytes().to_numpy(), dtype=np.int64)])
    return np.frombuffer("".join(texts).encode(), dtype=np.uint8), ends
