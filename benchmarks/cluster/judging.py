"""What it takes to rank all items for users by wmf: CPU seconds of one thread, and the bytes of what a call answers."""

import time
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks.random_graph import demo_graph
from models.evaluation.beyond_accuracy import Exposure
from models.wmf.model import WMF, WMFSettings
from tasks.evaluate.ranks import rank_each
from tasks.stores.matrices import Part

SIZE = 2_000, 40_000, 100_000  # users, items, edges
REPEATS = 3
SEED = 1


@dataclass(frozen=True)
class Judging:
    """Of the calls of an evaluation.

    Attributes:
        score: CPU seconds of a user's score of an item, made and ranked.
        user: bytes that a call answers for each user.
        item: bytes that it answers for each item.
    """

    score: float
    user: float
    item: float


def measured() -> Judging:
    """One target of each user is ranked among all items that are not in the history."""
    whole = demo_graph(*SIZE, SEED)
    users, items = whole.shape
    first = np.zeros(whole.nnz, dtype=bool)
    first[whole.indptr[:-1][np.diff(whole.indptr) > 1]] = True
    targets, histories = (_kept(whole, chosen) for chosen in (first, ~first))
    rows = np.arange(users, dtype=np.int32)
    part, model = Part(histories, targets, rows, rows), WMF(WMFSettings(iterations=1)).fit(histories)
    seconds = []
    for _ in range(REPEATS):
        exposures = {score: Exposure(model.item_degrees, users) for score in model.score_names}
        began = time.process_time()
        ranks = rank_each(model, part, exposures, told=False)
        seconds.append(time.process_time() - began)
    [found], [exposure] = ranks.values(), exposures.values()
    judged = len(found.of_edges)
    of_users = [*found.of_users.values(), found.of_edges, exposure.shown.of_users]
    of_user = sum(one.nbytes for one in of_users) / judged
    return Judging(min(seconds) / (judged * items), of_user, exposure.shown.times.nbytes / items)


def _kept(matrix: csr_matrix, edges: np.ndarray) -> csr_matrix:
    """The chosen edges of a matrix."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))[edges]
    ones = np.ones(len(rows), dtype=matrix.dtype)
    return csr_matrix((ones, (rows, matrix.indices[edges])), shape=matrix.shape)
