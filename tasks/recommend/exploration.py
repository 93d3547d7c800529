"""Lists of which some places explore: their items are drawn from the posterior, each with its probability to be shown.

Of the best n items of a user, by the published model and the rules, the first n - k stay, pinned ones at least. The
others compete for the last k places with further candidates, CANDIDATES_PER_PLACE * n in all: those that come next by
the score, and in turn with them those of the largest m_i + OPTIMISM s_i, where m_i is the mean and s_i the standard
deviation of the companion's calibrated `like`. By the score alone an item that few like yet would never compete. The
places go to the largest draws a_i ~ N(m_i, s_i^2), one for each user, item and night.

The propensity of an item is the probability that its list has it: 1 where nothing is drawn, and
`models.exploration.place_probabilities` where it is.
"""

import dataclasses
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.exploration import draw_scores, place_probabilities
from oneclass.tasks.recommend.like_calibration import Like
from oneclass.tasks.rules.selection import Selection, select_lists

CANDIDATES_PER_PLACE = 5
OPTIMISM = 2.0


class Exploration(NamedTuple):
    """How lists explore.

    Attributes:
        share: of the places that explore; at least one does.
        night: days since 1970, which the draws are keyed by, beside the seed and the user.
    """

    share: float
    night: int
    seed: int


def find_candidates(scores: np.ndarray, like: Like, histories: csr_matrix, selection: Selection) -> np.ndarray:
    """Return each user's candidates, int32 (block, N) padded with -1: first the best n, best first, then the others.

    All of them together obey the limits of the rules, so that any of them do.

    Args:
        scores, histories: as `select_lists` takes them.
        like: means and standard deviations, (block, items).
        selection: of the published lists.
    """
    wanted = min(CANDIDATES_PER_PLACE * selection.n, scores.shape[1])
    plain = dataclasses.replace(selection, n=wanted, diversity=None)
    best, _ = select_lists(scores, histories, plain)
    optimistic = np.nan_to_num(like[0] + OPTIMISM * like[1], nan=-np.inf).astype(np.float32)
    none = np.empty(0, dtype=np.int32)
    plain = dataclasses.replace(plain, constraints=dataclasses.replace(plain.constraints, boosts=None, pinned=none))
    promising, _ = select_lists(optimistic, histories, plain)
    turn = np.full(scores.shape, -np.inf, dtype=np.float32)
    places = np.arange(wanted, dtype=np.float32)
    of_best = np.where(places < selection.n, wanted - places, -places)
    for items, of_items in ((promising, -places - 0.5), (best, of_best)):
        users, ranks = np.nonzero(items >= 0)
        columns = items[users, ranks]
        turn[users, columns] = np.maximum(turn[users, columns], of_items[ranks])
    in_turn, turns = select_lists(turn, histories, plain)
    return np.where(np.isfinite(turns), in_turn, -1)


def pick_items(
    exploration: Exploration, candidates: np.ndarray, like: Like, users: np.ndarray, n: int, pinned: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Pick n candidates for each user.

    Args:
        candidates: int32 (block, N), the best n items first, padded with -1.
        like: means and standard deviations, (block, N); an item without them competes with a mean of 0.
        users: the users' rows.
        pinned: items that come first wherever they are candidates.

    Returns:
        (positions, propensities): int64 and float64 (block, n), positions among the candidates, padded with -1.
    """
    is_item = candidates >= 0
    places = max(1, round(exploration.share * n))
    stay = np.maximum(n - places, np.isin(candidates, pinned).sum(axis=1))
    competes = is_item & (np.arange(candidates.shape[1]) >= stay[:, None])
    means = np.where(competes, np.nan_to_num(like[0].astype(np.float64)), np.nan)
    deviations = np.where(competes, np.nan_to_num(like[1].astype(np.float64)), np.nan)
    drawn = draw_scores(means, deviations, users=users, night=exploration.night, seed=exploration.seed)
    chosen, propensities = _mark_largest(drawn, n - stay), np.zeros(candidates.shape)
    for count in np.unique(n - stay):
        rows = np.flatnonzero(n - stay == count)
        propensities[rows] = place_probabilities(means[rows], deviations[rows], int(count))
    shown = chosen | (is_item & ~competes)
    positions = np.argsort(~shown, axis=1, kind="stable")[:, :n]
    is_shown = np.take_along_axis(shown, positions, axis=1)
    of_shown = np.take_along_axis(np.where(competes, propensities, 1.0), positions, axis=1)
    return np.where(is_shown, positions, -1), np.where(is_shown, np.minimum(of_shown, 1.0), 0.0)


def order_picks(picks: np.ndarray, candidates: np.ndarray, scores: np.ndarray, pinned: np.ndarray) -> np.ndarray:
    """Return in which order a list shows its picks: pinned items first, then by score; padding last.

    Args:
        picks: of `pick_items`, (block, n).
        scores: of the candidates, (block, N).
    """
    is_pick, places = picks >= 0, np.maximum(picks, 0)
    is_pinned = is_pick & np.isin(np.take_along_axis(candidates, places, axis=1), pinned)
    by_score = np.where(is_pick, -np.take_along_axis(scores, places, axis=1), np.inf)
    return np.lexsort((np.where(is_pinned, places, by_score), ~is_pinned))


def _mark_largest(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Mark in each row so many of the largest values, NaN aside; of equal values the first, bool like `values`."""
    order = np.argsort(np.where(np.isnan(values), np.inf, -values), axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.broadcast_to(np.arange(values.shape[1]), order.shape), axis=1)
    return (ranks < counts[:, None]) & ~np.isnan(values)
