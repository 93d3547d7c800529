"""Say of listed items how sure a like is, and why they are listed, whichever model ranked them.

A companion is a model with a like probability (`Model.like`), fitted on the edges of the model that ranks, or that
model itself. It gives the probabilities, calibrated, and the reasons of items for which the ranking model names none.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models import registry
from oneclass.models.base import Model
from oneclass.models.numerics.matmul import normalize_columns
from oneclass.models.numerics.top_k import find_top_contributions
from oneclass.tasks.recommend.like_calibration import UNCALIBRATED, Calibrations, Like
from oneclass.tasks.recommend.new_items import MAX_REASONS, find_attribute_reasons


@dataclass(frozen=True)
class Companion:
    """A fitted model with a like probability, and the calibrations of it."""

    model: Model
    calibrations: Calibrations = UNCALIBRATED


class ItemDescriptions(NamedTuple):
    """How sure a like of listed items is, and why they are listed.

    Attributes:
        like: mean and standard deviation, NaN if not to be published, float32 (block, n); None without a companion.
        explicit_like: the same, calibrated against explicit negatives; None without these.
        because: int32 (block, n, MAX_REASONS), columns of the history, padded with -1; None without reasons.
    """

    like: Like | None
    explicit_like: Like | None
    because: np.ndarray | None


def has_like(model: str) -> bool:
    """Whether a model has a like probability."""
    return registry.MODELS[model]._like is not Model._like  # pyright: ignore[reportPrivateUsage] (what models override)


def describe_items(
    model: Model,
    companion: Companion | None,
    histories: csr_matrix,
    users: np.ndarray | None,
    items: np.ndarray,
    *,
    explain: bool = True,
) -> ItemDescriptions:
    """Return the like probabilities of listed items, and the likes of the user that speak for each.

    Args:
        model: the one that ranked.
        companion: of the model, which may be the model itself; None if no model of the run has a like probability.
        users: as in `Model.scores`, of both models.
        items: int32 (block, n), padded with -1.
        explain: whether to ask the model what contributed; else its items are explained as those of no such sum.

    Returns:
        Reasons of an item are the likes that contributed most to its score; if the score is no sum over the history,
        those nearest to the item by the companion's factors; and of a new item, those that resemble it by attributes.
    """
    like = explicit = None
    because = find_top_contributions(histories, items, model.contributions, MAX_REASONS) if explain else None
    if companion is not None and (raw := companion.model.like(histories, users=users, items=items)) is not None:
        mean, deviation = companion.calibrations.sampled.apply(raw)
        like = mean, deviation if companion.calibrations.sampled.spread is not None else np.full_like(mean, np.nan)
        explicit = companion.calibrations.explicit and companion.calibrations.explicit.apply(raw)
        because = _add_nearest(companion.model, histories, items, because)
    if (of_new := find_attribute_reasons(model, histories, items)) is not None:
        because = of_new if because is None else np.where(of_new[..., :1] >= 0, of_new, because)
    return ItemDescriptions(like, explicit, because)


def _add_nearest(
    companion: Model, histories: csr_matrix, items: np.ndarray, because: np.ndarray | None
) -> np.ndarray | None:
    """Fill the reasons of items without any by the likes of the highest cosine above zero of the model's factors."""
    if (vectors := companion.item_vectors()) is None:
        return because
    units = companion.compute_once("unit vectors", lambda: normalize_columns(vectors))

    def contribute(history: csr_matrix, row_items: np.ndarray) -> np.ndarray:
        cosines = units[:, history.indices].T @ units[:, row_items]
        cosines[history.indices[:, None] == row_items] = 0  # an item is no reason for itself
        return cosines

    if because is None:
        because = np.full((*items.shape, MAX_REASONS), -1, dtype=np.int32)
    lacking = (items >= 0) & (because[..., 0] < 0)
    if not (rows := np.flatnonzero(lacking.any(axis=1))).size:
        return because
    of_rows = histories if len(rows) == len(items) else histories[rows]
    nearest = find_top_contributions(of_rows, items[rows], contribute, MAX_REASONS)
    assert nearest is not None
    because[rows] = np.where(lacking[rows][..., None], nearest, because[rows])
    return because
