"""Searches: the model, the data and the search space; the trials that Optuna suggests for them, and their fits.

A suggestion depends only on the search, the trial's number and the trials of earlier batches. So the trials of one
batch can run concurrently, in any order, and be repeated.
"""

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState
from scipy.sparse import csr_matrix

from oneclass.models import fingerprint
from oneclass.models.base import Model
from oneclass.models.derived_settings import RelativeRange, apply_trial
from oneclass.models.evaluation import metrics
from oneclass.models.fit_options import Epoch, FitOptions
from oneclass.models.memory_estimates import LogSize
from oneclass.models.registry import MODELS
from oneclass.models.settings import Choice, ModelSettings, ParameterRange, SearchSpace
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.evaluate.ranking import users_with_targets
from oneclass.tasks.protocols import NEXT_EVENTS_VALIDATION, PROTOCOLS
from oneclass.tasks.stores import resources
from oneclass.tasks.stores.checksums import compute_key
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import SplitMatrices
from oneclass.tasks.train import find_validation_users
from oneclass.tasks.tuning.validation import evaluate_model, load_validation

logger = logging.getLogger(__name__)
optuna.logging.disable_default_handler()  # `_log_trial` logs the trials
STARTUP_TRIALS = 4  # trials before the sampler learns from them
TRIAL_STATES = {TrialState.COMPLETE: "done", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}
MAX_SECONDS_RATIO, MIN_LIMIT_SECONDS = 8, 20.0  # limit of a run's own trials: over the first one, and at least


@dataclass(frozen=True)
class Search:
    """A search: the model, the data and the search space; equal searches share one study.

    Attributes:
        digests: the protocol's split in the matrix store, or its folds: a trial is fitted on each, and evaluated by the
            users of all.
        start: the initial settings, those of the first trial; settings that are not searched keep their values.
        space: the range of each searched setting.
        seed: for the draws of settings, for the models, and for drawing a validation part.
        edges, items: of the sample that trials are fitted on, as in `load_validation`.
        unsearched: settings outside the space that the second and the following trials may take from
            `ModelSettings.initial_trials`, and later ones from the best trial so far.
        whole: size of the log, if a run searches by itself: such a search stops fits that cost far more than the first.
    """

    model: str
    protocol: str
    digests: tuple[str, ...]
    start: ModelSettings
    space: SearchSpace
    seed: int = 0
    edges: int | None = None
    items: int | None = None
    unsearched: tuple[str, ...] = ()
    whole: LogSize | None = None

    @property
    def metric(self) -> str:
        return PROTOCOLS[self.protocol].tuned_by

    @property
    def initial_values(self) -> list[dict[str, Any]]:
        """Values of the first trials: the initial settings, then those that worked well, in the model's own ranges."""
        declared, trials = self.start.search_space.items(), self.start.initial_trials
        known = {name for name, of in declared if self.space.get(name) == of} | set(self.unsearched)
        return [{}, *filter(None, ({name: of[name] for name in of if name in known} for of in trials))]

    def load_folds(self, home: Home) -> list[SplitMatrices]:
        """Load the data that the trials are fitted on and evaluated by, of every fold or of the only split."""
        sample = (self.seed, self.edges, self.items)
        return [load_validation(home, digest, *sample) for digest in self.digests]

    def count_users(self, home: Home) -> int:
        """Count the validation users with an edge to find, of all folds."""
        return sum(len(users_with_targets(split.parts["validation"])) for split in self.load_folds(home))

    def compute_digest(self, *data: Any) -> str:
        """Compute the digest of `data` and of everything else that must be equal for trials to be comparable."""
        start, space = self.start.model_dump(mode="json"), {name: repr(of) for name, of in self.space.items()}
        source = fingerprint.fingerprint_model(MODELS[self.model])
        return compute_key(source, self.protocol, start, space, self.initial_values, self.seed, *data)[:16]


def choose_space(settings: ModelSettings, split: SplitMatrices) -> SearchSpace:
    """Return the declared ranges of a model's settings that count on a split: weights of recency only if its validation
    edges are the latest and histories keep their order, those of explicit negatives only if it has some.
    """
    is_latest = split.latest_mask is not None or split.protocol == NEXT_EVENTS_VALIDATION
    space = dict(settings.search_space)
    if space and is_latest and split.recency_ranks is not None:
        space |= settings.recency_search_space
    if space and split.explicit_negatives is not None:
        space |= settings.explicit_search_space
    return space


def suggest_trial(search: Search, ended: Sequence[FrozenTrial], interactions: csr_matrix) -> optuna.Trial:
    """Suggest the next trial by Optuna's TPE sampler, in a study of its own in memory.

    The trial's attribute `values` has the values to try, multiples as such; none for the initial settings.

    Args:
        ended: the trials so far, in their order; their number decides the sampler's seed.
        interactions: the matrix that the trial is fitted on.
    """
    number = len(ended)
    seed = int(np.random.SeedSequence([search.seed, number]).generate_state(1)[0])
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP_TRIALS, multivariate=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.add_trials(ended)
    if number < len(search.initial_values):
        values = search.initial_values[number]
        searched = {name: value for name, value in values.items() if name in search.space}
        study.enqueue_trial(_project_start(search, interactions) | searched)
    else:
        best = find_best_trial(ended)
        values = best.user_attrs["values"] if best else {}
    trial = study.ask({name: to_distribution(range_) for name, range_ in search.space.items()})
    unsearched = {name: value for name, value in values.items() if name not in search.space}
    trial.set_user_attr("values", {**unsearched, **trial.params} if number else {})
    return trial


def find_best_trial(trials: Sequence[FrozenTrial]) -> FrozenTrial | None:
    """Return the trial with the highest value, the first of equals; None if none completed."""
    done = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    return max(done, key=lambda trial: trial.value or 0.0, default=None)


def describe_trials(trials: Sequence[FrozenTrial]) -> list[dict[str, Any]]:
    """Return a row per trial: its number from 1, how it ended, its value, all settings, and what else it recorded."""
    return [
        {"number": number, "state": TRIAL_STATES[trial.state], "value": trial.value}
        | {name: trial.user_attrs[name] for name in ("standard_error", "score", "seconds", "note", "settings")}
        for number, trial in enumerate(trials, 1)
    ]


def to_distribution(range_: ParameterRange) -> BaseDistribution:
    if isinstance(range_, Choice):
        return CategoricalDistribution(range_.values)
    if isinstance(range_.low, int) and isinstance(range_.high, int):
        return IntDistribution(range_.low, range_.high, log=range_.log)
    return FloatDistribution(range_.low, range_.high, log=range_.log)


def _project_start(search: Search, interactions: csr_matrix) -> dict[str, Any]:
    """Project the initial settings into the search space; those that no rule derives are left to the sampler."""
    multiples = {name: None for name, range_ in search.space.items() if isinstance(range_, RelativeRange)}
    by_rule, projected = search.start.model_copy(update=multiples).resolve(interactions), dict[str, Any]()
    for name, range_ in search.space.items():
        rule = getattr(by_rule, name)
        value = getattr(search.start, name) or rule
        if isinstance(range_, RelativeRange):
            value = value / rule if rule else 1.0
        if isinstance(range_, Choice):
            projected[name] = value if value in range_.values else range_.values[0]
        elif value is not None:
            projected[name] = min(max(value, range_.low), range_.high)
    return projected


def format_setting(value: Any) -> str:
    """Format a setting's value for a line of text."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def run_trial(home: Home, search: Search, ended: Sequence[FrozenTrial]) -> FrozenTrial:
    """Suggest the trial after those that ended, fit and evaluate it on the data of a home, and log how it ended."""
    folds, kind, spill = search.load_folds(home), MODELS[search.model], home.absolute().spill
    suggested = suggest_trial(search, ended, folds[0].train)
    trial = fit_trial(search, suggested, folds, kind, home.limits.threads, spill)
    _log_trial(search, [*ended, trial])
    return trial


def fit_trial(
    search: Search,
    trial: optuna.Trial,
    folds: Sequence[SplitMatrices],
    kind: type[Model],
    threads: int,
    scratch: Path | None = None,
) -> FrozenTrial:
    """Fit and evaluate a trial of a model of class `kind` on validation data in memory.

    A trial fails if the model refuses the settings, if its scores cannot be ranked, or if memory is short, here or on
    the whole log. In a run's own search it is pruned if it takes far longer than the first.

    Returns:
        The ended trial. Its attributes are `values`, all `settings`, the `score` that reached its value, the
        `standard_error` over users, `seconds` of wall time, and a `note` with the reason if it was pruned or failed.
    """
    started, first, limit = time.perf_counter(), trial.study.trials[0], math.inf
    if search.whole and first.state == TrialState.COMPLETE:
        limit = max(MIN_LIMIT_SECONDS, MAX_SECONDS_RATIO * first.user_attrs["seconds"])

    def watch(epoch: Epoch) -> None:
        seconds = time.perf_counter() - started
        if seconds > limit and epoch.number < epoch.of:
            raise optuna.TrialPruned(f"stopped after {seconds:.0f} s, at epoch {epoch.number} of {epoch.of}")

    value, error, score, note, values = None, None, "", "", trial.user_attrs["values"]
    settings = {**search.start.model_dump(mode="json"), **values}
    try:
        chosen = apply_trial(search.start, values, folds[0].train)
        settings = chosen.model_dump(mode="json")
        models = [kind(chosen, seed=search.seed, threads=threads) for _ in folds]
        for model, split in zip(models, folds, strict=True):
            options = FitOptions(
                validation=find_validation_users(split),
                explicit_negatives=split.explicit_negatives,
                item_features=split.item_features,
                scratch=scratch,
                on_epoch=watch,
            )
            # Settings other than the initial ones must fit into memory on the whole log too.
            size = search.whole if search.whole and values else LogSize.of(split.train)
            with resources.guard_model_memory(f"tune: {search.model}", model.estimate_cost(chosen, size).bytes):
                model.fit(split.train, options)
        values, score = evaluate_model(models, [split.parts["validation"] for split in folds], search.metric)
        mean = metrics.mean_and_error(values)
        value, error, state = mean.value, mean.standard_error, TrialState.COMPLETE
    except optuna.TrialPruned as pruned:
        state, note = TrialState.PRUNED, str(pruned)
    except (ValueError, ArithmeticError, MemoryError, OneclassError) as failure:
        state, note = TrialState.FAIL, " ".join(f"{failure or type(failure).__name__}".split())
    recorded = {"settings": settings, "score": score, "standard_error": error, "note": note}
    for name, of in {**recorded, "seconds": time.perf_counter() - started}.items():
        trial.set_user_attr(name, of)
    return trial.study.tell(trial, value, state)


def _log_trial(search: Search, ended: Sequence[FrozenTrial]) -> None:
    """Log the settings of the last trial, how it ended, and the best so far."""
    row, best = describe_trials(ended)[-1], find_best_trial(ended)
    names = {**search.space, **ended[-1].user_attrs["values"]}
    tried = ", ".join(f"{name} {format_setting(row['settings'][name])}" for name in names)
    end = f"{search.metric} {format_setting(row['value'])} {row['note']}".strip()
    level = logging.WARNING if row["state"] == "failed" else logging.INFO
    so_far = format_setting(best.value if best else None)
    logger.log(level, "trial %d (%s): %s, %s; best so far %s", row["number"], tried, row["state"], end, so_far)
