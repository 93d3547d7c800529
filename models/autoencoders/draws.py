"""The random draws of an autoencoder's fit: the order of the users, the dropout, the noise of the latent vectors.

The key of every draw is (seed, purpose, epoch, user), as in `models.numerics.random_numbers`; PyTorch draws nothing. So
the draws are the same on a CPU and on a GPU, and the same in a fit that was interrupted and goes on.
"""

import numpy as np
from numba import njit, prange
from scipy.sparse import csr_matrix

from oneclass.models.numerics.matmul import as_read_only
from oneclass.models.numerics.random_numbers import below, bits, normal, purpose, stream, uniform


def shuffle_users(users: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """The users in the order of one epoch."""
    keys = np.empty(len(users), dtype=np.uint64)
    _fill_keys(as_read_only(users, np.int64), np.uint64(seed), purpose("autoencoder order"), np.uint64(epoch), keys)
    return users[np.argsort(keys, kind="stable")]


def draw_inputs(rows: csr_matrix, users: np.ndarray, seed: int, epoch: int, dropout: float) -> np.ndarray:
    """The input values of the edges: x / |x|, zeroed with probability `dropout`, else divided by 1 - `dropout`.

    Args:
        rows: (batch, items), the histories.
        users: (batch,), their rows of the training matrix.

    Returns:
        float32 (edges of the batch,).
    """
    out = np.empty(rows.nnz, dtype=np.float32)
    streams = np.uint64(seed), purpose("autoencoder dropout"), np.uint64(epoch)
    _fill_inputs(as_read_only(rows.indptr, np.int64), as_read_only(users, np.int64), streams, float(dropout), out)
    return out


def draw_noise(users: np.ndarray, width: int, seed: int, epoch: int) -> np.ndarray:
    """Standard normals, float32 (users, width)."""
    out = np.empty((len(users), width), dtype=np.float32)
    _fill_noise(as_read_only(users, np.int64), np.uint64(seed), purpose("autoencoder noise"), np.uint64(epoch), out)
    return out


def choose_held_out(
    interactions: csr_matrix, share: float, most: int, seed: int
) -> tuple[np.ndarray, csr_matrix, csr_matrix]:
    """Choose validation users among those with two edges or more; a fifth of their edges (at least one) are targets.

    Returns:
        (users, histories, targets): the rows, ascending; none if the share is less than one user.
    """
    able = np.flatnonzero(np.diff(interactions.indptr) > 1)
    users = np.sort(shuffle_users(able, seed, 0)[: min(most, int(share * len(able)))])
    rows = interactions[users]
    chosen = np.zeros(rows.nnz, dtype=np.bool_)
    _choose_targets(
        as_read_only(rows.indptr, np.int64),
        as_read_only(users, np.int64),
        np.uint64(seed),
        purpose("autoencoder held-out edges"),
        chosen,
    )
    return users, select_edges(rows, ~chosen), select_edges(rows, chosen)


def select_edges(rows: csr_matrix, kept: np.ndarray) -> csr_matrix:
    """The rows with only those edges for which `kept`, bool (edges,), is true."""
    indptr = np.concatenate([[0], np.cumsum(kept)])[rows.indptr]
    return csr_matrix((rows.data[kept], rows.indices[kept], indptr), shape=rows.shape)


@njit(cache=True, nogil=True)
def _fill_keys(users, seed, what, epoch, out):
    for at in range(len(users)):
        out[at] = bits(stream(seed, what, epoch, users[at]), 0)


@njit(cache=True, parallel=True, nogil=True)
def _fill_inputs(indptr, users, streams, dropout, out):
    seed, what, epoch = streams
    for row in prange(len(users)):
        first, last = indptr[row], indptr[row + 1]
        if last > first:
            key = stream(seed, what, epoch, users[row])
            value = np.float32(1.0 / (np.sqrt(last - first) * (1.0 - dropout)))
            for edge in range(first, last):
                out[edge] = value if uniform(key, edge - first) >= dropout else np.float32(0.0)


@njit(cache=True, parallel=True, nogil=True)
def _fill_noise(users, seed, what, epoch, out):
    for row in prange(len(users)):
        key = stream(seed, what, epoch, users[row])
        for column in range(out.shape[1]):
            out[row, column] = normal(key, column)


@njit(cache=True, nogil=True)
def _choose_targets(indptr, users, seed, what, chosen):
    """Choose a fifth of the edges of each row, every set equally likely, by Floyd's algorithm."""
    for row in range(len(users)):
        first, count = indptr[row], indptr[row + 1] - indptr[row]
        key = stream(seed, what, 0, users[row])
        for top in range(count - max(1, count // 5), count):
            edge = below(key, top, top + 1)
            chosen[first + (top if chosen[first + edge] else edge)] = True
