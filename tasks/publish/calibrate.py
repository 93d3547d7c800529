"""Calibrate the published `like` on the validation users of the splits that choose what is published.

Each pair is a held-out like, or a negative of the same user that is drawn as the model's fit draws its own. So a
calibrated `like` of .3 says: among likes and such negatives that look like this pair, three in ten are likes.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.negatives.distributions import CensoredPairs, NegativeDistribution
from oneclass.tasks.recommend.like_calibration import LikeCalibration
from oneclass.tasks.stores import fits, matrices
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import Part, SplitMatrices

logger = logging.getLogger(__name__)

WANTED_PAIRS, MAX_DRAWS = 20_000, 10  # likes, and pairs of each user
VALIDATION = "validation"


def calibrate_like(home: Home, model: str, judged: Sequence[tuple[str, str]]) -> LikeCalibration | None:
    """Fit the calibration of a model's `like`; None if there are too few pairs to fit on.

    Args:
        judged: digests of the matrices and of the model's fit on them.
    """
    blocks = []
    for matrices_digest, digest in judged:
        split, fit = matrices.load_split(home, matrices_digest), fits.load_fit(home, model, digest)
        if VALIDATION in split.parts:
            blocks += _sample_pairs(fit, split, split.parts[VALIDATION])
    calibration = None
    if blocks:
        mean, deviation, is_like, weights = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
        calibration = LikeCalibration.fit((mean, deviation), is_like, weights)
    if calibration is None:
        logger.info("%s: like is published as the model gives it; too few validation pairs to calibrate it", model)
    else:
        logger.info("%s: like is calibrated on %s validation pairs", model, f"{calibration.pairs:,}")
    return calibration


def _sample_pairs(model: Model, split: SplitMatrices, part: Part) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield the mean and the standard deviation of `like`, whether a pair is a like, and its weight."""
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
        known = None if part.rows is None else part.rows[users]
        like = model.like(part.histories[users], users=known, items=items)
        assert like is not None
        exists = (items >= 0) & (weights > 0)
        yield like[0][exists], like[1][exists], np.tile([1.0, 0.0], (len(users), 1))[exists], weights[exists]


def _for_part(
    distribution: NegativeDistribution, split: SplitMatrices, part: Part
) -> tuple[NegativeDistribution, csr_matrix, np.ndarray]:
    """Return the distribution of the users' negatives, and the matrix and its rows that have the users' likes."""
    if part.rows is not None:
        return distribution.counted(split.train), split.train, part.rows
    if isinstance(distribution, CensoredPairs):  # an unseen user's share is that of the events, as in a fold-in
        events = np.asarray(part.histories.sum(axis=1), dtype=np.float64).ravel()
        distribution = replace(distribution, user_shares=events / events.sum())
    return distribution.counted(part.histories), part.histories, np.arange(len(part.users))
