"""The least that a model's work moves or computes, and what that comes to at the machine's rates.

Bounds, not plans: a fit by factors has to gather the rows of the other side once an edge, a pass and a side, out of
tables of its own size; one by X'X meets every pair of a user's items, whatever it does with the sums; a dense inverse is
n^3 operations of LAPACK's potrf and potri.
"""

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks.scale.workloads.limits import Rates, gather
from oneclass.models.base import Model

FLOAT = 4  # bytes
GATHERS = {"bpr_uniform": 3, "bpr_popularity": 3}  # rows an edge and a pass; of other models by factors 2
BY_PAIRS = ("mrf_sparse", "slim", "graph_filter")
Bound = tuple[str, float | None]


def width(model: Model) -> int | None:
    """Numbers a user or an item, of a model that has them."""
    return next((found for name in ("factors", "hidden") if (found := getattr(model.params, name, None))), None)


def of_fit(model: Model, train: csr_matrix, passes: int, rates: Rates) -> Bound:
    """What bounds a fit, and its CPU seconds; none of a model that is not known here."""
    if model.name == "popularity":
        return "copy of the items of the edges", FLOAT * train.nnz / rates.copy
    if model.name == "mrf_dense":
        return "Cholesky, n^3", float(train.shape[1]) ** 3 / rates.cholesky
    if model.name in BY_PAIRS:
        pairs = float((np.diff(train.indptr).astype(float) ** 2).sum()) / 2
        return "gather of a user's pairs", FLOAT * pairs / rates.gather
    if numbers := width(model):
        rows = passes * GATHERS.get(model.name, 2) * float(train.nnz)
        return f"gather of rows, K = {numbers}, {passes} passes", FLOAT * numbers * rows / gather(
            sum(train.shape), numbers
        )
    return "", None


def of_scores(model: Model, users: int, items: int, rates: Rates) -> Bound:
    """What bounds the scores of some users, and its CPU seconds: their product, or writing them."""
    if numbers := width(model):
        return f"SGEMM, K = {numbers}", 2.0 * numbers * users * items / rates.sgemm
    return "copy of the scores", float(FLOAT) * users * items / rates.copy
