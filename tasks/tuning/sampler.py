"""Suggesting trials. A suggestion depends only on the search, the trial's number and the trials of earlier batches.

So the trials of one batch can run concurrently, in any order, and be repeated.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState
from scipy.sparse import csr_matrix

from oneclass.models.settings import Choice, ParameterRange, RelativeRange
from oneclass.tasks.tuning.search import Search, Trial, TrialOutcome, best_outcome, limit_seconds


def to_distribution(range_: ParameterRange) -> BaseDistribution:
    if isinstance(range_, Choice):
        return CategoricalDistribution(range_.values)
    if isinstance(range_, RelativeRange):
        range_ = range_.to_numeric_range
    if isinstance(range_.low, int) and isinstance(range_.high, int):
        return IntDistribution(range_.low, range_.high, log=range_.log)
    return FloatDistribution(range_.low, range_.high, log=range_.log)


def project_value(range_: ParameterRange, value: Any) -> Any:
    """Return the value if it lies in the range, else the nearest one or, for None, the middle."""
    if isinstance(range_, RelativeRange):
        range_ = range_.to_numeric_range
    if isinstance(range_, Choice):
        return value if value in range_.values else range_.values[0]
    if value is None:
        middle = math.sqrt(range_.low * range_.high) if range_.log else (range_.low + range_.high) / 2
        return round(middle) if isinstance(range_.low, int) and isinstance(range_.high, int) else middle
    return min(max(value, range_.low), range_.high)


def interpolate_value(range_: ParameterRange, value: Any, generator: np.random.Generator) -> Any:
    """Return the midpoint between a value and a random draw from its range; for a choice, one of the two."""
    if isinstance(range_, Choice):
        return value if generator.random() < 0.5 else range_.values[generator.integers(len(range_.values))]
    if isinstance(range_, RelativeRange):
        range_ = range_.to_numeric_range
    into, back = (math.log, math.exp) if range_.log else (float, float)
    half_way = back((into(value) + generator.uniform(into(range_.low), into(range_.high))) / 2)
    whole = isinstance(range_.low, int) and isinstance(range_.high, int)
    return round(half_way) if whole else min(max(half_way, range_.low), range_.high)


STARTUP_TRIALS, QUICK_STARTUP_TRIALS = 10, 5  # trials before the sampler learns from them
TRIALS_BEFORE_PRUNING = 5  # completed trials before others are pruned by comparison with them

EndedTrials = Sequence[tuple[TrialOutcome, FrozenTrial]]


def suggest(search: Search, number: int, earlier: EndedTrials, initial_interactions: csr_matrix | None = None) -> Trial:
    """Suggest one trial by Optuna's TPE sampler, given the trials of earlier batches, with a seed of its own.

    Args:
        earlier: the trials of earlier batches, in their order.
        initial_interactions: the matrix to fit on, for the trial of the initial settings; None for others.
    """
    draw = int(np.random.SeedSequence([search.seed, number - 1]).generate_state(1)[0])
    sampler = optuna.samplers.TPESampler(
        seed=draw, n_startup_trials=QUICK_STARTUP_TRIALS if search.quick else STARTUP_TRIALS, multivariate=search.quick
    )
    study = optuna.create_study(direction="maximize", sampler=sampler)  # in memory, with the earlier trials only
    study.add_trials([trial for _, trial in earlier])
    if initial_interactions is not None:
        study.enqueue_trial(_project_start(search, initial_interactions))
    elif (initial := _initial_trial(search, number)) is not None:
        study.enqueue_trial({name: initial.get(name, value) for name, value in earlier[0][1].params.items()})
    elif search.quick and number <= QUICK_STARTUP_TRIALS:
        study.enqueue_trial(_interpolate_best(search, earlier, np.random.default_rng(draw)))
    params = study.ask({name: to_distribution(range_) for name, range_ in search.space.items()}).params
    values = {**_fixed_settings(search, number, earlier), **params} if initial_interactions is None else {}
    limit = limit_seconds(earlier[0][0]) if search.quick and earlier else math.inf
    return Trial(number, params, values, median_values([trial for _, trial in earlier]), limit)


def median_values(earlier: Sequence[FrozenTrial]) -> dict[int, float]:
    """Return the median value of the completed trials by percent of the epochs; empty while these are few."""
    done = [trial.intermediate_values for trial in earlier if trial.state == TrialState.COMPLETE]
    if len(done) < TRIALS_BEFORE_PRUNING:
        return {}
    percents = sorted({percent for values in done for percent in values})
    return {at: float(np.percentile([values[at] for values in done if at in values], 50)) for at in percents}


def _fixed_settings(search: Search, number: int, earlier: EndedTrials) -> dict[str, Any]:
    """Return a trial's settings outside the search space that differ from the initial settings."""
    best, values = best_outcome(outcome for outcome, _ in earlier), _initial_trial(search, number)
    if values is None:
        values = best.values if best else {}
    return {name: value for name, value in values.items() if name not in search.space}


def _project_start(search: Search, interactions: csr_matrix) -> dict[str, Any]:
    """Project the initial settings into the search space."""
    start, space = search.start, search.space
    multiples = [name for name, range_ in space.items() if isinstance(range_, RelativeRange)]
    by_rule = start.model_copy(update=dict.fromkeys(multiples)).resolve(interactions)
    values = {name: getattr(by_rule, name) if value is None else value for name, value in start.model_dump().items()}
    for name in multiples:
        rule, value = getattr(by_rule, name), getattr(start, name)
        values[name] = value / rule if value and rule else 1.0
    return {name: project_value(range_, values[name]) for name, range_ in space.items()}


def _initial_trial(search: Search, number: int) -> Mapping[str, Any] | None:
    """Return the values that a trial takes from `Search.initial_trials`; None for other trials."""
    return search.initial_trials[number - 2] if 2 <= number < 2 + len(search.initial_trials) else None


def _interpolate_best(search: Search, earlier: EndedTrials, generator: np.random.Generator) -> dict[str, Any]:
    """Interpolate between the best of the initial trials and random draws (`interpolate_value`)."""
    initial = earlier[: 1 + len(search.initial_trials)]
    _, best = max(initial, key=lambda trial: trial[0].value or 0.0 if trial[0].state == "done" else -math.inf)
    return {name: interpolate_value(range_, best.params[name], generator) for name, range_ in search.space.items()}
