"""Calibrate the published `like` on the validation users of the splits that choose what is published.

Each pair is a held-out like, or a negative of the same user that is drawn as the model's fit draws its own. So a
calibrated `like` of .3 says: among likes and such negatives that look like this pair, three in ten are likes. Where the
log has explicit negatives, a second calibration is against held-out ones of these, which are in the log's proportion.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.negatives.distributions import CensoredPairs, NegativeDistribution
from oneclass.tasks.evaluate.calibration import has_both_classes, iterate_pair_blocks
from oneclass.tasks.recommend.like_calibration import UNVERIFIED, Calibrations, LikeCalibration, LikePairs
from oneclass.tasks.stores import fits, matrices
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import Part, SplitMatrices

logger = logging.getLogger(__name__)

WANTED_PAIRS, MAX_DRAWS = 20_000, 10  # likes, and pairs of each user
PLACES, MAX_LISTS, MAX_SCORES = 50, 1_000, 10**8  # of lists that judge the deviation
Pairs = tuple[np.ndarray, ...]
"""Positions of users in the part; their items, padded with -1, whether these are likes, and weights, (users, pairs)."""


def calibrate_like(
    home: Home, model: str, judged: Sequence[tuple[str, str]], explicit: Sequence[tuple[str, str]] = ()
) -> Calibrations:
    """Fit the calibrations of a model's `like`; with too few pairs the mean stays as the model gives it.

    Args:
        judged: digests of the matrices and of the model's fit on them.
        explicit: the same, of splits that may hold out explicit negatives.
    """
    listed, sampled, rated = (
        _load_pairs(home, model, on, iterate_pairs)
        for on, iterate_pairs in ((judged, _list_pairs), (judged, _sample_pairs), (explicit, _load_explicit_pairs))
    )
    calibration = sampled and LikeCalibration.fit(*sampled, listed=listed)
    if calibration is None or calibration.spread is None:
        columns = "like_sd stays" if calibration is None or calibration.holds else "like_mean and like_sd stay"
        why = "do not confirm it" if calibration else "are too few to calibrate like"
        logger.info("%s: %s empty, since likes of validation users %s", model, columns, why)
    return Calibrations(calibration or UNVERIFIED.sampled, rated and LikeCalibration.fit(*rated))


def _load_pairs(
    home: Home, model: str, judged: Sequence[tuple[str, str]], iterate_pairs: Callable[..., Iterator[Pairs]]
) -> LikePairs | None:
    """Load `like`, whether it is a like, and the weight of pairs of the validation parts; None without any."""
    blocks = []
    for matrices_digest, digest in judged:
        split, fit = matrices.load_split(home, matrices_digest), fits.load_fit(home, model, digest)
        if (part := split.parts.get("validation")) is None:
            continue
        for users, items, is_like, weights in iterate_pairs(fit, split, part):
            like = fit.like(part.histories[users], users=None if part.rows is None else part.rows[users], items=items)
            assert like is not None
            exists = (items >= 0) & (weights > 0)
            blocks.append([of_pairs[exists] for of_pairs in (*like, is_like, weights)])
    if not blocks:
        return None
    mean, deviation, is_like, weights = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return ((mean, deviation), is_like, weights) if len(weights) else None


def _list_pairs(model: Model, split: SplitMatrices, part: Part) -> Iterator[Pairs]:
    """Yield the first PLACES items of users' lists, weighted by the likes they stand for, and by expected negatives."""
    counts, degrees = np.diff(part.targets.indptr), np.diff(part.histories.indptr)
    users = np.flatnonzero(counts * degrees)
    users = users[:: -(-len(users) // max(1, min(MAX_LISTS, MAX_SCORES // model.item_count))) or 1]
    if (distribution := model.negative_distribution()) is None or not len(users):
        return
    negatives, train, rows = _for_part(distribution, split, part)
    score = "popularity_x_like" if "popularity_x_like" in model.score_names else None
    for start in range(0, len(users), model.users_at_once):
        block = users[start : start + model.users_at_once]
        known = None if part.rows is None else part.rows[block]
        items, _ = model.recommend(part.histories[block], PLACES, users=known, score=score)
        likes = (part.targets if isinstance(negatives, CensoredPairs) else part.targets.sign())[block].toarray()
        rates = negatives.rates(train, rows[block], np.zeros(likes.shape))
        likes, rates = (np.take_along_axis(of, np.maximum(items, 0), axis=1) for of in (likes, rates))
        yield block, items, likes * (degrees / np.maximum(counts, 1))[block, None], rates


def _load_explicit_pairs(model: Model, split: SplitMatrices, part: Part) -> Iterator[Pairs]:
    """Yield the pairs of held-out likes and explicit negatives."""
    if has_both_classes(part):
        for users, items, is_like in iterate_pair_blocks(part):
            yield users, items, is_like, np.ones(items.shape)


def _sample_pairs(model: Model, split: SplitMatrices, part: Part) -> Iterator[Pairs]:
    """Yield the pairs of one held-out like and one drawn negative of each user."""
    counts = np.diff(part.targets.indptr)
    users = np.flatnonzero(counts)
    users = users[:: -(-len(users) // WANTED_PAIRS) or 1]
    if (distribution := model.negative_distribution()) is None or not len(users):
        return
    negatives, train, rows = _for_part(distribution, split, part)
    uniform = np.random.default_rng(model.seed)
    for draw in range(min(MAX_DRAWS, -(-WANTED_PAIRS // len(users)))):
        entries = part.targets.indptr[users] + (uniform.random(len(users)) * counts[users]).astype(np.int64)
        drawn = negatives.draw(train, rows[users], model.seed + draw)
        items = np.stack([part.targets.indices[entries], drawn], axis=1)
        weights = np.stack(negatives.weights(train, rows[users], part.targets.data[entries]), axis=1)
        yield users, items, np.tile([1.0, 0.0], (len(users), 1)), weights


def _for_part(
    distribution: NegativeDistribution, split: SplitMatrices, part: Part
) -> tuple[NegativeDistribution, csr_matrix, np.ndarray]:
    """Return the distribution of the users' negatives, and the matrix and its rows that have the users' likes."""
    if part.rows is not None:
        return distribution.with_statistics(split.train), split.histories, part.rows
    if isinstance(distribution, CensoredPairs):  # an unseen user's share is that of the events, as in a fold-in
        events = np.asarray(part.histories.sum(axis=1), dtype=np.float64).ravel()
        distribution = replace(distribution, user_shares=events / events.sum())
    return distribution.with_statistics(part.histories), part.histories, np.arange(len(part.users))
