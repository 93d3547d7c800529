"""q of users who were not in training, with the items fixed (`models.random_graph.model`)."""

import numpy as np
from numba import njit, prange

from oneclass.models.negatives.sampling import (
    HEAVY_USER_RATIO,
    allocate_draw_scratch,
    draw_user_negatives,
    negative_starts,
)
from oneclass.models.numerics.adjacency import Adjacency, partition_shards
from oneclass.models.numerics.logistic_bound import OPTIONS, GaussianFactors, allocate_workspace
from oneclass.models.numerics.random_numbers import GOLDEN, mix, purpose
from oneclass.models.random_graph.inference import USER_FACTORS, PrecisionPosterior, update_vertex

FOLD_IN = purpose("random graph: fold-in")
UPDATES = 12  # of a user, each with new negatives


def fold_in_users(
    likes: Adjacency,
    table: np.ndarray,
    histogram: tuple[np.ndarray, tuple[np.ndarray, np.ndarray]],
    seed: int,
    taus: PrecisionPosterior,
    factors: int,
) -> GaussianFactors:
    """Find q(u_m) of users by their histories.

    Every update draws new negatives; steps are one at first and then average over the draws. The random stream of a
    user depends on the history alone, so that equal histories get equal results, whatever their rows.

    Args:
        table: the packed rows of the items.
        histogram: pi and its alias table.
    """
    users = GaussianFactors.prior(len(likes[0]) - 1, factors, clamped=True)
    starts, tau = negative_starts(likes, histogram[0]), np.float32(taus.mean(USER_FACTORS))
    draws = *histogram, seed, _history_keys(*likes)
    _fold_in_users(users.arrays, table, likes, starts, *draws, partition_shards(likes[0]), tau, UPDATES)
    return users


@njit(parallel=True, **OPTIONS)
def _fold_in_users(posterior, table, likes, starts, pi, alias, seed, units, bounds, tau, iterations):
    """Find q(u_m) in place; other arguments as in `models.negatives.sampling.draw_negatives` and `update_factors`.

    A user has all updates before the next one, since for one user a call, and a parallel loop too, takes as long as
    the update.
    """
    negatives = np.empty(starts[-1], dtype=np.int32)
    for shard in prange(len(bounds) - 1):
        workspace = allocate_workspace(posterior[0].shape[1])
        scratch = allocate_draw_scratch(len(pi))
        for user in range(bounds[shard], bounds[shard + 1]):
            for t in range(1, iterations + 1):
                mark = user * iterations + t
                key, heavy = (seed, t), HEAVY_USER_RATIO
                draw_user_negatives(likes, starts, negatives, pi, alias, user, mark, key, units, heavy, scratch)
                step = np.float32(1.0 / max(t - 3, 1))
                update_vertex(workspace, posterior, table, (likes, (starts, negatives)), user, tau, step)


@njit(cache=True, nogil=True)
def _history_keys(starts, items):
    """A number for each history, whatever its row: the sum of the hashes of its items."""
    names = np.empty(len(starts) - 1, dtype=np.uint64)
    for user in range(len(names)):
        name = FOLD_IN
        for at in range(starts[user], starts[user + 1]):
            name += mix(np.uint64(items[at]) + GOLDEN)
        names[user] = name
    return names
