"""Warm start: initialise a fit from that of the latest run; new users and items start as in any fit.

Indices are numbered by first appearance, so they keep their meaning unless a filter, a threshold or the logs themselves
changed; then the fit starts afresh. It also starts afresh if the earlier fit was trained on many of the edges that are
now targets, which would leak the answers. If only a few are, their users start as new ones: a user's only like is
trained on, and may be held out once there are more.
"""

import logging

import numpy as np
from scipy.sparse import csr_matrix

from oneclass import sql
from oneclass.models.base import Model
from oneclass.models.fit_options import FitOptions, Start
from oneclass.tasks.stores import checksums, fits, matrices, warehouse
from oneclass.tasks.stores.fits import Fit
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import SplitMatrices

logger = logging.getLogger(__name__)

LEAK_TOLERANCE = 0.01  # share of the targets that an earlier fit may have been trained on


def find_latest_fit(home: Home, protocol: str, model: str) -> Fit | None:
    """Find the model's fit by the latest completed run, if it is still stored and undamaged."""
    with warehouse.open_warehouse(home, read_only=True) as connection:
        values = {"protocol": protocol, "model": model}
        found = connection.execute(sql.statement("train/latest_fit"), values).fetchone()
    return fits.find_fit(home, model, found[0]) if found else None


def build_start(home: Home, estimator: Model, previous: Fit, split: SplitMatrices) -> Start | None:
    """Build a start from the earlier fit for a fit on a split; None, with a warning, if it is unusable."""
    try:
        start = _match_fit(home, previous, split)
        FitOptions(start=start).check(estimator, split.train.shape)
    except (checksums.DamagedFile, ValueError) as error:
        logger.warning("%s begins afresh: %s", estimator.name, error)
        return None
    logger.info("%s begins at the fit of the last run", estimator.name)
    return start


def _match_fit(home: Home, previous: Fit, split: SplitMatrices) -> Start:
    before = matrices.load_split(home, previous.matrices, parts=())
    numbering = before.numbering
    with warehouse.open_warehouse(home, read_only=True) as connection:
        values = {"users": numbering["users"], "items": numbering["items"]}
        if warehouse.fetch_row(connection, sql.statement("split/numbering"), values) != (numbering["digest"],):
            raise ValueError("users or items were numbered anew since the last run")
    leaked = _find_leaked_targets(before, split)
    if len(leaked) > LEAK_TOLERANCE * sum(part.targets.nnz for part in split.parts.values()):
        raise ValueError("the last run was trained on edges that have to be found now")
    known = before.items[before.items < numbering["items"]]  # the index of an item that nobody liked may change
    users, items = _match_indices(before.users, split.users), _match_indices(known, split.items)
    users[np.isin(split.users, leaked)] = -1
    return Start(fits.load_fit(home, previous.model, previous.digest), users, items)


def _find_leaked_targets(before: SplitMatrices, split: SplitMatrices) -> np.ndarray:
    """Return the `user_index` of each target of the split that was a training edge before."""
    columns, leaked = _match_indices(before.items, split.items), [np.empty(0, dtype=np.int32)]
    for part in split.parts.values():
        targets = part.targets.tocoo()
        row, column = _match_indices(before.users, part.users)[targets.row], columns[targets.col]
        known = (row >= 0) & (column >= 0)
        targets_before = csr_matrix((np.ones(known.sum()), (row[known], column[known])), shape=before.train.shape)
        leaked.append(before.users[targets_before.multiply(before.train).nonzero()[0]])
    return np.concatenate(leaked)


def _match_indices(before: np.ndarray, now: np.ndarray) -> np.ndarray:
    """Return the position in `before` of each index of `now`, -1 if it is new."""
    size = max(int(before.max(initial=-1)), int(now.max(initial=-1))) + 1
    positions = np.full(size, -1, dtype=np.int64)
    positions[before] = np.arange(len(before))
    return positions[now]
