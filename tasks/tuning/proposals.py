"""What a trial tries: it follows from the search, the trial's number and the trials of earlier rounds, and from nothing else.

So trials of one round can be made side by side, in any order, and again.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState
from scipy.sparse import csr_matrix

from models.search_space import Multiple
from tasks.tuning.ranges import between, distribution, nearest
from tasks.tuning.search import Asked, Outcome, Search, best_of

EARLY, EARLY_OF_SHORT = 10, 5  # trials before the sampler learns from them
BEFORE_STOPPING = 5  # trials that were fitted to their end, before others are held against them

Ended = Sequence[tuple[Outcome, FrozenTrial]]


def asked(search: Search, number: int, earlier: Ended, begins_on: csr_matrix | None = None) -> Asked:
    """One trial, drawn by Optuna's TPE sampler from the trials of earlier rounds, with a seed of its own.

    Args:
        earlier: the trials of earlier rounds, in their order.
        begins_on: the matrix to fit on, for a trial of the settings that the search begins at; None for others.
    """
    draw = int(np.random.SeedSequence([search.seed, number - 1]).generate_state(1)[0])
    sampler = optuna.samplers.TPESampler(
        seed=draw, n_startup_trials=EARLY_OF_SHORT if search.short else EARLY, multivariate=search.short
    )
    study = optuna.create_study(direction="maximize", sampler=sampler)  # in memory, of what the trial may know
    study.add_trials([trial for _, trial in earlier])
    if begins_on is not None:
        study.enqueue_trial(_nearest_to_start(search, begins_on))
    elif (elsewhere := _elsewhere(search, number)) is not None:
        study.enqueue_trial({name: elsewhere.get(name, value) for name, value in earlier[0][1].params.items()})
    elif search.short and number <= EARLY_OF_SHORT:
        study.enqueue_trial(_half_way(search, earlier, np.random.default_rng(draw)))
    params = study.ask({name: distribution(range_) for name, range_ in search.space.items()}).params
    values = {**_beside(search, number, earlier), **params} if begins_on is None else {}
    return Asked(number, params, values, medians([trial for _, trial in earlier]))


def medians(earlier: Sequence[FrozenTrial]) -> dict[int, float]:
    """By percent of the epochs, the median value of the trials that went to their end; nothing while these are few."""
    done = [trial.intermediate_values for trial in earlier if trial.state == TrialState.COMPLETE]
    if len(done) < BEFORE_STOPPING:
        return {}
    percents = sorted({percent for values in done for percent in values})
    return {one: float(np.percentile([values[one] for values in done if one in values], 50)) for one in percents}


def _beside(search: Search, number: int, earlier: Ended) -> dict[str, Any]:
    """The settings outside the space that a trial has, where they are not those that the search began at."""
    best, values = best_of(outcome for outcome, _ in earlier), _elsewhere(search, number)
    if values is None:
        values = best.values if best else {}
    return {name: value for name, value in values.items() if name not in search.space}


def _nearest_to_start(search: Search, interactions: csr_matrix) -> dict[str, Any]:
    """Where the settings to begin at lie in the search space, or near which of its values."""
    start, space = search.start, search.space
    multiples = [name for name, range_ in space.items() if isinstance(range_, Multiple)]
    by_rule = start.model_copy(update=dict.fromkeys(multiples)).resolve(interactions)
    values = {name: getattr(by_rule, name) if value is None else value for name, value in start.model_dump().items()}
    for name in multiples:
        rule, value = getattr(by_rule, name), getattr(start, name)
        values[name] = value / rule if value and rule else 1.0
    return {name: nearest(range_, values[name]) for name, range_ in space.items()}


def _elsewhere(search: Search, number: int) -> Mapping[str, Any] | None:
    """What a trial has of `elsewhere`; of other settings it has what the first trial has. None for other trials."""
    return search.elsewhere[number - 2] if 2 <= number < 2 + len(search.elsewhere) else None


def _half_way(search: Search, earlier: Ended, generator: np.random.Generator) -> dict[str, Any]:
    """Values between those of the best beginning and a draw: numbers half way, of the rest one half as they were."""
    begun = earlier[: 1 + len(search.elsewhere)]
    _, better = max(begun, key=lambda one: one[0].value if one[0].state == "done" else -math.inf)
    return {name: between(range_, better.params[name], generator) for name, range_ in search.space.items()}
