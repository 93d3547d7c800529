"""Moments of the columns of a users x items matrix under weights of the users, their centring and rescaling."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.numerics.adjacency import partition_by_budget
from oneclass.models.numerics.validation import ENTRIES_PER_CHUNK, count_item_degrees

SUM_BITS = 52  # the whole multiples that weights are made of add up to at most 2^53, up to which float64 has them all


def exact_degree_weights(degrees: np.ndarray, exponent: float) -> np.ndarray:
    """degree^-exponent, rounded so that sums of these weights have no rounding error; zeros for users without an edge.

    The weights are whole multiples of their `grain`, at least one each. Any sum over some of the users, and any
    difference of such sums, is a whole multiple of it that float64 has exactly; so sums have the same bits in whatever
    order, and by whatever additions and subtractions, they came about. An exponent of 0 gives ones.

    Returns:
        float64 (users,).
    """
    powers, size = _degree_powers(degrees, exponent), weight_quantum(degrees, exponent)
    return np.where(degrees > 0, np.maximum(np.rint(powers / size), 1.0), 0.0) * size


def weight_quantum(degrees: np.ndarray, exponent: float) -> float:
    """The power of two whose multiples `exact_degree_weights` are: 2^-52 of their sum, or up to half of that."""
    _, bits = np.frexp(_degree_powers(degrees, exponent).sum())
    return float(np.ldexp(1.0, int(bits) - SUM_BITS))


def degree_weights_or_ones(degrees: np.ndarray, exponent: float) -> np.ndarray:
    """degree^-exponent, float64, scaled to mean one over the users with an edge; 1 for the others."""
    weights, active = np.ones(len(degrees)), degrees > 0
    powers = _degree_powers(degrees, exponent)[active]
    weights[active] = powers / powers.mean()
    return weights


def _degree_powers(degrees: np.ndarray, exponent: float) -> np.ndarray:
    powers, active = np.zeros(len(degrees)), degrees > 0
    powers[active] = degrees[active].astype(np.float64) ** -exponent
    return powers


@dataclass(frozen=True)
class ColumnMoments:
    """Weighted moments of the columns of X, a matrix of zeros and ones; w are the weights of the users, of mean one.

    Attributes:
        weights: float64 (users,), w / unit, any sum of which is exact; zero for users without an edge.
        unit: what scales the weights to mean one over the users with an edge.
        mean: float64 (items,), mu = sum_m w_m x_m / n, n being the number of users with an edge.
        spread: float64 (items,), n times the variance; exactly 0 for an item that all users like, or none.
        users: n.
    """

    weights: np.ndarray
    unit: float
    mean: np.ndarray
    spread: np.ndarray
    users: int


def column_moments(interactions: csr_matrix, user_weight_exponent: float) -> ColumnMoments:
    """Weights d_m^-exponent of the users, scaled to mean one, and the items' moments under them."""
    degrees = np.diff(interactions.indptr)
    users = int(np.count_nonzero(degrees))
    weights = exact_degree_weights(degrees, user_weight_exponent)
    unit = users / float(weights.sum())
    mean = unit * _weighted_degrees(interactions, weights) / users
    spread = users * mean * (1 - mean)
    degrees_of_items = count_item_degrees(interactions)
    spread[(degrees_of_items == 0) | (degrees_of_items == users)] = 0.0
    return ColumnMoments(weights, unit, mean, spread, users)


def _weighted_degrees(interactions: csr_matrix, weights: np.ndarray) -> np.ndarray:
    """sum_m w_m x_m, float64 (items,), some users at a time: in whatever pieces, these sums are exact."""
    indptr, total = interactions.indptr, np.zeros(interactions.shape[1])
    for users in partition_by_budget(np.diff(indptr), ENTRIES_PER_CHUNK):
        of_entries = np.repeat(weights[users], np.diff(indptr[users.start : users.stop + 1]))
        items = interactions.indices[indptr[users.start] : indptr[users.stop]]
        total += np.bincount(items, weights=of_entries, minlength=len(total))
    return total


def mean_over_edges(moments: ColumnMoments, alpha: float) -> float:
    """The squared norm of the rescaled column of an edge's item, averaged over the (weighted) edges.

    sum_j n_j^(2 - alpha) / sum_j n_j with n_j = users mean_j, columns divided by n_j^(alpha / 2). It is what a typical
    like meets on the diagonal of the Gram matrix: a penalty that is a multiple of it means the same on any log.
    """
    norms = moments.users * moments.mean
    return float(np.sum(norms ** (2 - alpha)) / np.sum(norms))


@dataclass(frozen=True)
class Rescaling:
    """Centring and rescaling of the columns, section 5 of the paper on Markov random fields.

    Attributes:
        scale: float64 (items,), spread^(alpha / 2), and 1 for an item without spread.
        shift: float64 (items,), sqrt(n / unit) mu to centre sums of `Columns.weights`, or zeros to leave them as they
            are.
        factor: float64 (items,), sqrt(unit) / scale; 0 for an item that is left out.
        back: float64 (items,), the factor of an item's scores; in the paper it is `scale`.
    """

    scale: np.ndarray
    shift: np.ndarray
    factor: np.ndarray
    back: np.ndarray


def rescale_columns(moments: ColumnMoments, alpha: float, centred: bool, popularity_discount: float = 0.0) -> Rescaling:
    """The rescaling of the columns.

    With centring, items that all users like, or none, are left out; without it, only items that no user likes.
    """
    varies = moments.spread > 0
    spread = np.where(varies, moments.spread, 1.0)
    scale, back = spread ** (alpha / 2), spread ** ((alpha - popularity_discount) / 2)
    shift = moments.mean * np.sqrt(moments.users / moments.unit) * centred
    factor = (varies if centred else moments.mean > 0) * np.sqrt(moments.unit) / scale
    return Rescaling(scale, shift, factor, back)
