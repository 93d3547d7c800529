"""The matrices that tuning fits on and judges by. Of a stored split only the training and validation arrays are read.

The validation part of strong_generalization holds users that have no training edge. The other protocols have no
validation part; one is cut from their training edges: those that come last, where the split says which these are
(`split.validation`), else by a hash of user and item: one edge of every user with two or more, or a fifth of the edges
of every user with five or more.
"""

import functools
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from models.evaluation.held_out_edges import held_out_edges, parted
from models.numerics.ordered_histories import ordered
from models.numerics.threads import kernel_threads
from tasks.errors import InputError
from tasks.protocols import PROTOCOLS
from tasks.stores import matrices
from tasks.stores.home import Home
from tasks.stores.matrices import Part, SplitMatrices

GIVEN_SHARE = 0.2  # of a user's training edges, cut for the validation part of `given`
JUDGES = 1000  # users at most who judge on a sample


@dataclass(frozen=True)
class Validation:
    """The matrices by which settings are chosen.

    Attributes:
        metric: what is maximized, one of `models.evaluation.metrics`.
        train: (training users, items), what every trial is fitted on.
        part: users with the edges to be found.
        negatives: (training users, items), what they considered and did not like; None where the log does not tell.
    """

    metric: str
    train: csr_matrix
    part: Part
    negatives: csr_matrix | None = None

    @property
    def users(self) -> int:
        """Users with an edge to be found."""
        return int(np.count_nonzero(np.diff(self.part.targets.indptr)))


@functools.lru_cache(maxsize=2)  # a study asks for the same parts at every trial, and once for larger ones
def validation(
    home: Home, protocol: str, matrices_digest: str, seed: int, edges: int | None = None, items: int | None = None
) -> Validation:
    """The training and validation parts of a stored split.

    Args:
        seed: of the hash that cuts a validation part, where one is drawn, and of the sample.
        edges: take a sample of the training users who have about so many edges together; None for all.
        items: take so many of the items, those with the most edges among these users; None for all.

    Raises:
        InputError: no user has an edge to be found, or nothing is left to train on.
    """
    if protocol == "strong_generalization":
        split = matrices.read(home, matrices_digest, parts=("validation",))
        found = Validation(PROTOCOLS[protocol].tuned_by, split.train, split.parts["validation"], split.negatives)
    else:
        split = matrices.read(home, matrices_digest, parts=())
        with kernel_threads(home.limits.threads):
            found = _cut(split, seed)
    if (edges or found.train.nnz) < found.train.nnz or (items or found.train.shape[1]) < found.train.shape[1]:
        found = _sample(found, edges or found.train.nnz, items or found.train.shape[1], seed)
    if not found.users or not found.train.nnz:
        raise InputError(
            f"{protocol}: {found.users} validation users with an edge to be found and {found.train.nnz} edges to "
            "train on; the log is too small to tune on."
        )
    return found


def _cut(split: SplitMatrices, seed: int) -> Validation:
    if split.ends is None:
        degrees = np.diff(split.train.indptr)
        counts = degrees >= 2 if split.protocol == "leave_one_out" else np.floor(GIVEN_SHARE * degrees)
        chosen = held_out_edges(split.train, counts, seed, split.users, split.items)
    else:
        chosen = np.asarray(split.ends)
    train, targets = parted(split.train, chosen)
    rows = np.flatnonzero((np.diff(train.indptr) > 0) & (np.diff(targets.indptr) > 0)).astype(np.int32)
    histories = ordered(train, None if split.places is None else split.places[~chosen])
    part = Part(histories=histories[rows], targets=targets[rows], users=split.users[rows], rows=rows)
    return Validation(PROTOCOLS[split.protocol].tuned_by, train, part, split.negatives)


def _sample(whole: Validation, edges: int, items: int, seed: int) -> Validation:
    """Some of the training users, the items that most of them have, and at most JUDGES users to judge by."""
    generator, users = np.random.default_rng(seed), whole.train.shape[0]
    trained = _drawn(generator, np.arange(users), max(1, round(users * edges / whole.train.nnz)))
    train, part = whole.train[trained], whole.part
    degrees = np.bincount(train.indices, minlength=train.shape[1])
    most = np.argsort(-degrees, kind="stable")[:items]
    known = np.sort(most[degrees[most] > 0])
    found = np.diff(part.targets[:, known].indptr) > 0
    if part.rows is not None:
        found &= np.isin(part.rows, trained)
    judges = _drawn(generator, np.flatnonzero(found), JUDGES)
    histories, targets = (matrix[judges][:, known].tocsr() for matrix in (part.histories, part.targets))
    rows = None if part.rows is None else np.searchsorted(trained, part.rows[judges]).astype(np.int32)
    negatives = None if whole.negatives is None else whole.negatives[trained][:, known].tocsr()
    judged = Part(histories, targets, part.users[judges], rows)
    return Validation(whole.metric, train[:, known].tocsr(), judged, negatives)


def _drawn(generator: np.random.Generator, rows: np.ndarray, most: int) -> np.ndarray:
    return np.sort(generator.choice(rows, most, replace=False)) if most < len(rows) else rows
