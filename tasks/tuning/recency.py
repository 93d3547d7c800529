"""How much less the older likes of a history weigh, chosen on the latest edges once a search has found the rest.

No fit depends on `recency_exponent`, so one fit serves all of its values.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from oneclass.models.base import Model
from oneclass.models.evaluation.metrics import compare_paired
from oneclass.models.memory_estimates import LogSize
from oneclass.models.registry import MODELS
from oneclass.models.settings import RecencySettings
from oneclass.tasks import memory_errors
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.evaluate.ranking import rank_targets_by_score
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import Part
from oneclass.tasks.tuning.halving import enlarge_search
from oneclass.tasks.tuning.search import Search, ValidationData
from oneclass.tasks.tuning.trial import sample_users

logger = logging.getLogger(__name__)

MAX_USERS = 3000  # validation users: of a thousand, gains of a thirtieth are within two standard errors
MIN_STANDARD_ERRORS = 2.0  # of the paired difference to equal weights; smaller gains do not hold on test edges


def choose_recency(home: Home, search: Search, values: Mapping[str, Any]) -> dict[str, float]:
    """Return the recency exponent that surely ranks better than equal weights, by its name; empty if none does.

    Exponents are tried in ascending order, up to the first that ranks no better than the one before it, by a fit on the
    larger sample: with few training users the best exponent is smaller.

    Args:
        search: of a model with `RecencySettings`, on histories in order and validation edges later than these.
        values: what the search has found, by setting.
    """
    data = replace(enlarge_search(search), validation_users=MAX_USERS).validation_data(home)
    part = sample_users(data.part, MAX_USERS)
    try:
        model = _fit_model(home, search, values, data)
        equal = best = _rank_with(model, part, search.metric, 0.0)
        chosen = 0.0
        for exponent in RecencySettings.exponents[1:]:
            of_users = _rank_with(model, part, search.metric, exponent)
            if of_users.mean() <= best.mean():
                break
            best, chosen = of_users, exponent
    except (ValueError, ArithmeticError, MemoryError, OneclassError) as error:
        logger.warning("%s: the order of likes is not weighed: %s", search.model, error)
        return {}
    gain = compare_paired(best, equal)
    is_sure = bool(gain.standard_error) and gain.difference > MIN_STANDARD_ERRORS * gain.standard_error
    logger.info(
        "%s: %s %.4f with equal weights, %+.4f with recency_exponent %g, which is %s",
        search.model, search.metric, equal.mean(), gain.difference, chosen, "taken" if is_sure else "not taken",
    )  # fmt: skip
    return {"recency_exponent": chosen} if is_sure else {}


def _fit_model(home: Home, search: Search, values: Mapping[str, Any], data: ValidationData) -> Model:
    settings = search.settings_of(values, data)
    model = MODELS[search.model](settings, seed=search.seed, threads=home.limits.threads)
    needed = model.estimate_cost(settings, LogSize.of(data.train)).bytes
    with memory_errors.guard_model_memory(f"tune: {search.model}", needed):
        model.fit(data.train, data.fit_options(home.absolute().spill))
    return model


def _rank_with(model: Model, part: Part, metric: str, exponent: float) -> np.ndarray:
    """Return the metric of each user by the best score of the model with this recency exponent."""
    model.params = model.params.model_copy(update={"recency_exponent": exponent})
    of_scores = [ranks.of_users[metric] for ranks in rank_targets_by_score(model, part).values()]
    return max(of_scores, key=np.mean)
