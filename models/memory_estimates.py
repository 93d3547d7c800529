"""Estimates of what fits and scores cost, used to schedule work and to leave out what a machine cannot hold."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.numerics.validation import count_item_degrees

BYTES_PER_EDGE = 16  # an index and a value, by user and by item
BYTES_PER_FACTOR = 12  # a mean, a precision and what an update needs beside them
SCORE_BLOCK_COPIES = 2  # intermediate arrays as large as a block of scores
EDGE_SECONDS = 5e-5  # CPU seconds of a fit for each edge, of a model that says nothing else
BLOCK_BYTES = 1 << 23  # of a block of scores that fits the CPU's cache
LARGE_BLOCK_BYTES = 1 << 29  # of a block of scores if each reads an (items, items) table, of 1.3 GB for 17,770 items
SERIAL_BYTES = 1 << 28  # larger blocks are scored one after another
DEGREE_STEPS = 16  # classes of degrees in a factor of two


@dataclass(frozen=True)
class LogSize:
    """The size of a training matrix.

    Attributes:
        users, items, edges: the numbers of rows, columns and entries.
        gram_entries: estimated number of ordered pairs of items, an item with itself included, that share a user.
    """

    users: int
    items: int
    edges: int
    gram_entries: int = 0

    @classmethod
    def of(cls, interactions: csr_matrix) -> Self:
        """Measure a (users, items) training matrix.

        In a random graph of its degrees two items share Poisson many users, with the mean
        d_a d_b sum_m d_m (d_m - 1) / edges^2. A real log has groups of items with more users in common, so fewer pairs.
        """
        degrees, item_degrees = np.diff(interactions.indptr).astype(float), count_item_degrees(interactions)
        active = item_degrees[item_degrees > 0]
        classes, counts = np.unique(np.round(DEGREE_STEPS * np.log2(active)), return_counts=True)
        typical = 2.0 ** (classes / DEGREE_STEPS)
        shared = np.outer(typical, typical) * (degrees @ (degrees - 1)) / max(1.0, degrees.sum()) ** 2
        pairs = float(counts @ -np.expm1(-shared) @ counts) + len(active)
        return cls(*interactions.shape, interactions.nnz, int(min(pairs, degrees @ degrees)))


@dataclass(frozen=True)
class FitCost:
    """What a fit takes, and how many users its scores are computed for at a time.

    Attributes:
        bytes, seconds: the additional memory of a fit of all users in one process, and its CPU seconds.
        depends_on_items: whether a fit on fewer users takes about as long, since the items' Gram matrix dominates.
        remedy: what makes a fit that needs too much memory smaller, as the end of a sentence; empty without.
        coordinator_bytes: what is held beside the calls of a fit by blocks of users; 0 if the fit is not by blocks.
        reads_table: whether each block of scores reads an (items, items) table, so that large blocks are faster.
        min_users: users of a block even if their scores are larger, where each reads the whole log or all factors.
    """

    bytes: int
    seconds: float
    depends_on_items: bool = False
    remedy: str = ""
    coordinator_bytes: int = 0
    reads_table: bool = False
    min_users: int = 1

    @classmethod
    def of_factors(cls, log: LogSize, factors: int, edge_seconds: float = EDGE_SECONDS, **more: Any) -> Self:
        """Estimate the cost of a fit of factors, with the CPU seconds that it takes for each edge."""
        of_factors = BYTES_PER_FACTOR * factors * (log.users + log.items)
        return cls(BYTES_PER_EDGE * log.edges + of_factors, edge_seconds * log.edges, **more)

    def users_per_block(self, items: int) -> int:
        """Return the number of users in a block of scores."""
        return max(self.min_users, (LARGE_BLOCK_BYTES if self.reads_table else BLOCK_BYTES) // (4 * items))


def is_serial(items: int, users: int) -> bool:
    """Return whether blocks of scores of so many users are so large that they are computed one after another."""
    return 4 * items * users > SERIAL_BYTES


def scoring_bytes(users: int, items: int, scores: int, saved: int) -> int:
    """Estimate the memory of ranking so many users at once by so many scores; `saved` is the fit's size."""
    return (scores + SCORE_BLOCK_COPIES) * 4 * items * users + 2 * saved
