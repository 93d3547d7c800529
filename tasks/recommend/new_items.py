"""Place items that nobody likes yet in lists, and say what they resemble."""

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.attributes.new_items import NewItems, find_nearest_likes, fold_in_items, score_new_items
from oneclass.models.base import Model
from oneclass.tasks.rules.selection import Selection

SAMPLED_ITEMS = 1000  # liked items that a new one is compared with
MAX_REASONS = 3


def raise_new_items(
    model: Model,
    score: str,
    histories: csr_matrix,
    users: np.ndarray | None,
    scores: np.ndarray,
    selection: Selection,
) -> np.ndarray:
    """Raise the scores of new items that belong into a user's list, so that they take its last places.

    That nobody likes an item yet says nothing against it. So a new item belongs into a list of n if it would be among
    the user's n best were nothing known of any item but its attributes, those of the history aside; liked items are
    represented by a sample. At most `selection.max_new` places are given to such items, in the order of their scores;
    one that comes earlier by its own score stays there.

    Args:
        scores: float32 (block, items), as `Model.scores` gives them.

    Returns:
        The scores, a copy if some are raised.
    """
    new = np.flatnonzero(model.item_degrees == 0)
    if not selection.max_new or not len(new) or model.item_features is None:
        return scores
    belongs = _compare_by_attributes(model, score, histories, users, scores[:, new], selection.n)
    if not belongs.any():
        return scores
    known = np.where(selection.constraints.eligible[selection.sets], scores, -np.inf)
    known[:, new] = -np.inf
    if selection.exclude_seen:
        known[np.repeat(np.arange(len(scores)), np.diff(histories.indptr)), histories.indices] = -np.inf
    if selection.excluded is not None:
        known[selection.excluded.nonzero()] = -np.inf
    first_place = selection.n - selection.max_new  # the place above those for new items
    places = known.shape[1] - np.clip([first_place, first_place + 1], 1, known.shape[1])
    upper, lower = np.partition(known, places, axis=1)[:, places].T
    raised = scores.copy()
    order = np.argsort(np.argsort(np.where(belongs, scores[:, new], -np.inf), axis=1), axis=1)
    with np.errstate(invalid="ignore"):  # -inf where a user has fewer items left; these lists have room anyway
        between = lower[:, None] + (upper - lower)[:, None] * ((order + 1) / (len(new) + 1))
    raised[:, new] = np.where(belongs & np.isfinite(between), np.maximum(scores[:, new], between), scores[:, new])
    return raised


def _compare_by_attributes(
    model: Model, score: str, histories: csr_matrix, users: np.ndarray | None, own: np.ndarray, n: int
) -> np.ndarray:
    """Return for each user and new item whether it would be among the n best by attributes alone, bool (block, new).

    Args:
        own: float32 (block, new), the scores of the new items.
    """
    liked, sample, as_new = model.compute_once("items as new", lambda: _represent_as_new(model))
    by_attributes = score_new_items(model, histories, as_new, users=users, score=score)
    by_attributes = np.sort(np.where(histories[:, sample].toarray() > 0, -np.inf, by_attributes), axis=1)
    allowed = min(max(1, round(n * len(sample) / liked)), len(sample))
    return own >= by_attributes[:, -allowed][:, None]


def _represent_as_new(model: Model) -> tuple[int, np.ndarray, NewItems]:
    """Return the number of liked items, and a fixed sample of them as if they were new."""
    liked = np.flatnonzero(model.item_degrees)
    sample = np.sort(np.random.default_rng(0).permutation(liked)[:SAMPLED_ITEMS])
    assert model.item_features is not None
    return len(liked), sample, fold_in_items(model, model.item_features[sample])


def find_attribute_reasons(model: Model, histories: csr_matrix, items: np.ndarray) -> np.ndarray | None:
    """Find what new items of lists resemble most by attributes among the user's likes.

    Args:
        items: int32 (block, n), padded with -1.

    Returns:
        int32 (block, n, MAX_REASONS), columns of the history, padded with -1; None if no item is new, or the model was
        fitted without attributes.
    """
    if model.item_features is None or not (is_new := (items >= 0) & (model.item_degrees[items] == 0)).any():
        return None
    reasons = np.full((*items.shape, MAX_REASONS), -1, dtype=np.int32)
    users, _ = np.nonzero(is_new)
    reasons[is_new] = find_nearest_likes(model.item_features, histories, users, items[is_new], MAX_REASONS)
    return reasons
