"""Warm start: a model's fit begins at the posterior of the latest run, with new users and items at their priors.

Indices are numbered by first appearance, so those of yesterday mean the same today unless a filter, a threshold
or the logs themselves have changed; then the fit begins afresh.
"""

import json
import logging

import numpy as np

import sql
from models import catalogue
from models.base import Model
from tasks.stores import matrices, warehouse
from tasks.stores.home import Home
from tasks.stores.matrices import SplitMatrices

logger = logging.getLogger(__name__)


def latest_fit(home: Home, protocol: str, model: str) -> str | None:
    """Digest of the model's fit by the latest completed run, where the store still has it."""
    with warehouse.connect(home, read_only=True) as connection:
        values = {"protocol": protocol, "model": model}
        found = connection.execute(sql.statement("train/latest_fit"), values).fetchone()
    return found[0] if found and (home.models / model / found[0] / "fit.json").exists() else None


def begin(home: Home, estimator: Model, previous: str, split: SplitMatrices) -> bool:
    """Let the estimator's next fit begin at an earlier one; whether it could.

    Args:
        previous: digest of a fit of the same model.
        split: what the next fit is on.
    """
    folder = home.models / estimator.name / previous
    before = matrices.read(home, json.loads((folder / "fit.json").read_text())["matrices"])
    if not _same_numbering(home, before):
        logger.warning("%s begins afresh: users or items were numbered anew since the last run", estimator.name)
        return False
    earlier = catalogue.load(estimator.name, folder)
    try:
        estimator.begin_from(earlier, _places(before.users, split.users), _places(before.items, split.items))
    except ValueError as error:
        logger.warning("%s begins afresh: %s", estimator.name, error)
        return False
    logger.info("%s begins at the fit of the last run", estimator.name)
    return True


def _same_numbering(home: Home, before: SplitMatrices) -> bool:
    numbering = before.numbering
    with warehouse.connect(home, read_only=True) as connection:
        values = {"users": numbering["users"], "items": numbering["items"]}
        (digest,) = connection.execute(sql.statement("split/numbering"), values).fetchone()
    return digest == numbering["digest"]


def _places(before: np.ndarray, now: np.ndarray) -> np.ndarray:
    """For each index of `now` its place in `before`, -1 where it is new."""
    size = max(int(before.max(initial=-1)), int(now.max(initial=-1))) + 1
    places = np.full(size, -1, dtype=np.int64)
    places[before] = np.arange(len(before))
    return places[now]
