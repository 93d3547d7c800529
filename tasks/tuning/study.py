"""The studies of a data set, in `<home>/<dataset>/tuning/study.db`: Optuna's own tables, for its own tools too.

A trial that ended has an `Outcome` among its attributes. A trial without one was cut off and does not count: the next
trial gets the same settings, because a trial's draws depend only on the seed and on how many trials ended before it.
"""

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState
from scipy.sparse import csr_matrix
from sqlalchemy import URL

from models import fingerprint
from models.catalogue import MODELS
from models.search_space import Choice, Multiple, Range, SearchSpace
from models.settings import ModelSettings
from tasks.protocols import PROTOCOLS
from tasks.stores.home import Home
from tasks.tuning.validation import Validation, validation

optuna.logging.disable_default_handler()  # the flow says what happens

EARLY, EARLY_OF_SHORT = 10, 5  # trials before the sampler learns from them
STATES = {"done": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}


@dataclass(frozen=True)
class Search:
    """What is tuned, and where; equal searches share one study.

    Attributes:
        matrices_digest: the protocol's split in the matrix store.
        start: the settings of the first trial; all trials keep those that are not searched.
        space: the range of each setting that is searched.
        seed: for the draws of settings, for the models, and for cutting a validation part.
        edges: about how many training edges a trial is fitted on, those of a sample of the users; None for all.
        items: how many of the items a trial is fitted on, those with the most edges; None for all.
        short: a search of few trials: the next ones lie half way from where it begins to a draw, and the study lasts no
            longer than the process.
        elsewhere: values that the second trial of a short search has; also of settings outside the space, which later
            trials have from the best one so far.
    """

    model: str
    protocol: str
    matrices_digest: str
    start: ModelSettings
    space: SearchSpace
    seed: int = 0
    edges: int | None = None
    items: int | None = None
    short: bool = False
    elsewhere: Mapping[str, Any] = field(default_factory=dict)

    @property
    def metric(self) -> str:
        return PROTOCOLS[self.protocol].tuned_by

    def judged_on(self, home: Home) -> Validation:
        """What the trials are fitted on and judged by."""
        return validation(home, self.protocol, self.matrices_digest, self.seed, self.edges, self.items)

    @property
    def source(self) -> str:
        """Digest of the model's source."""
        return fingerprint.of_model(MODELS[self.model])

    @property
    def study(self) -> str:
        """The study's name, with a digest of all that must be equal for the values of two trials to be comparable."""
        fixed = self.start.model_dump(mode="json", exclude=set(self.space))
        space = {name: repr(range_) for name, range_ in self.space.items()}
        parts = [
            self.matrices_digest,
            self.metric,
            fixed,
            space,
            self.seed,
            self.edges,
            self.short,
            dict(self.elsewhere),
            *([] if self.items is None else [f"{self.items} items"]),
        ]
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
        return f"{self.model} {self.protocol} {digest}"


@dataclass(frozen=True)
class Outcome:
    """How a trial ended.

    Attributes:
        number: counts the trials that ended, from 1.
        settings: all of the model's.
        values: what was tried of the search space, multiples as such; empty for the settings that the search began at.
        value: the validation metric; for a pruned trial that of its last checkpoint, for a failed one None.
        score: the one of the model's scores that reached the value.
        seconds: wall time of the fit, checkpoints included.
        checkpoint_seconds: wall time of the checkpoints.
        note: why it failed, or how far it came.
    """

    number: int
    state: Literal["done", "pruned", "failed"]
    settings: dict[str, Any]
    value: float | None = None
    standard_error: float | None = None
    score: str = ""
    seconds: float = 0.0
    checkpoint_seconds: float = 0.0
    note: str = ""
    values: dict[str, Any] = field(default_factory=dict)


class Study:
    """One study in the home's database, created where it does not exist."""

    def __init__(self, home: Home, search: Search) -> None:
        self.search = search
        self._storage = _memory() if search.short else _storage(home)
        self._study = optuna.create_study(
            storage=self._storage,
            study_name=search.study,
            direction="maximize",
            pruner=optuna.pruners.MedianPruner(n_startup_trials=5),
            load_if_exists=True,
        )

    def begin(self, interactions: csr_matrix) -> None:
        """Close the trials that a cut-off run left open; queue the settings to begin at, unless they were tried before.

        Args:
            interactions: what the trials are fitted on.
        """
        for trial in self._study.get_trials(states=(TrialState.RUNNING,)):
            self._study.tell(trial.number, state=TrialState.FAIL)
        start = self.search.start.model_dump(mode="json")
        waiting = [trial.user_attrs for trial in self._study.get_trials(states=(TrialState.WAITING,))]
        if {"settings": start} not in waiting and all(outcome.settings != start for outcome in self.outcomes()):
            self._study.enqueue_trial(self._nearest_to_start(interactions), user_attrs={"settings": start})

    def forget(self) -> None:
        """Delete the study."""
        optuna.delete_study(study_name=self.search.study, storage=self._storage)

    def outcomes(self) -> list[Outcome]:
        """The outcomes of the trials that ended, in their order."""
        trials = self._study.get_trials(deepcopy=False)
        return [Outcome(**trial.user_attrs["outcome"]) for trial in trials if "outcome" in trial.user_attrs]

    def best(self) -> Outcome | None:
        """The trial with the highest value, the first of equals; None where no trial was fitted to its end."""
        done = [outcome for outcome in self.outcomes() if outcome.state == "done"]
        return max(done, key=lambda outcome: outcome.value, default=None)

    def other_source(self) -> int:
        """How many trials were made by another version of the model's source."""
        trials, source = self._study.get_trials(deepcopy=False), self.search.source
        return sum("outcome" in trial.user_attrs and trial.user_attrs["source"] != source for trial in trials)

    def ask(self) -> optuna.Trial:
        """The next trial: its `params` are values of the search space, or its attribute `settings` has all of them."""
        number = len(self.outcomes())
        draw = int(np.random.SeedSequence([self.search.seed, number]).generate_state(1)[0])
        short = self.search.short
        self._study.sampler = optuna.samplers.TPESampler(
            seed=draw, n_startup_trials=EARLY_OF_SHORT if short else EARLY, multivariate=short
        )
        if short and 0 < number < EARLY_OF_SHORT:
            second = number == 1 and self.search.elsewhere
            self._study.enqueue_trial(self._elsewhere() if second else self._half_way(np.random.default_rng(draw)))
        return self._study.ask({name: _distribution(range_) for name, range_ in self.search.space.items()})

    def beside(self) -> dict[str, Any]:
        """The settings outside the space that the next trial has, where they are not those that the search began at."""
        outcomes, best = self.outcomes(), self.best()
        values = self.search.elsewhere if len(outcomes) == 1 else best.values if best else {}
        return {name: value for name, value in values.items() if name not in self.search.space}

    def _nearest_to_start(self, interactions: csr_matrix) -> dict[str, Any]:
        """Where the settings to begin at lie in the search space, or near which of its values."""
        start, space = self.search.start, self.search.space
        multiples = [name for name, range_ in space.items() if isinstance(range_, Multiple)]
        by_rule = start.model_copy(update=dict.fromkeys(multiples)).resolved(interactions)
        values = start.model_dump()
        for name in multiples:
            rule, value = getattr(by_rule, name), values[name]
            values[name] = value / rule if value and rule else 1.0
        return {name: _nearest(range_, values[name]) for name, range_ in space.items()}

    def _elsewhere(self) -> dict[str, Any]:
        """Values of the search space: those of `elsewhere`, and of the first trial where it has none."""
        first = self._study.get_trials(deepcopy=False)[0].params
        return {name: self.search.elsewhere.get(name, value) for name, value in first.items()}

    def _half_way(self, generator: np.random.Generator) -> dict[str, Any]:
        """Values between those of the better beginning and a draw: numbers half way, of the rest one half as they were."""
        begun = self.outcomes()[: 2 if self.search.elsewhere else 1]
        better = max(begun, key=lambda outcome: outcome.value if outcome.state == "done" else -math.inf)
        params = self._study.get_trials(deepcopy=False)[better.number - 1].params
        return {name: _between(range_, params[name], generator) for name, range_ in self.search.space.items()}

    def tell(self, trial: optuna.Trial, outcome: Outcome) -> None:
        """Close a trial."""
        trial.set_user_attr("source", self.search.source)
        trial.set_user_attr("outcome", dataclasses.asdict(outcome))
        value = outcome.value if outcome.state == "done" else None
        self._study.tell(trial, value, state=STATES[outcome.state])


@functools.lru_cache(maxsize=1)
def _storage(home: Home) -> optuna.storages.RDBStorage:
    home.tuning.mkdir(parents=True, exist_ok=True)
    url = URL.create("sqlite", database=str(home.tuning.resolve() / "study.db"))
    return optuna.storages.RDBStorage(url.render_as_string())


@functools.lru_cache(maxsize=1)
def _memory() -> optuna.storages.InMemoryStorage:
    return optuna.storages.InMemoryStorage()


def _distribution(range_: Range) -> BaseDistribution:
    if isinstance(range_, Choice):
        return CategoricalDistribution(range_.values)
    if isinstance(range_, Multiple):
        range_ = range_.span
    whole = isinstance(range_.low, int) and isinstance(range_.high, int)
    return (IntDistribution if whole else FloatDistribution)(range_.low, range_.high, log=range_.log)


def _nearest(range_: Range, value: Any) -> Any:
    """The value itself where the search space holds it, else one of the space that stands for it."""
    if isinstance(range_, Multiple):
        range_ = range_.span
    if isinstance(range_, Choice):
        return value if value in range_.values else range_.values[0]
    if value is None:
        middle = math.sqrt(range_.low * range_.high) if range_.log else (range_.low + range_.high) / 2
        return round(middle) if isinstance(range_.low, int) and isinstance(range_.high, int) else middle
    return min(max(value, range_.low), range_.high)


def _between(range_: Range, value: Any, generator: np.random.Generator) -> Any:
    """Half way from a value to a draw from its range; of a choice, the value or a draw."""
    if isinstance(range_, Choice):
        return value if generator.random() < 0.5 else range_.values[generator.integers(len(range_.values))]
    if isinstance(range_, Multiple):
        range_ = range_.span
    into, back = (math.log, math.exp) if range_.log else (float, float)
    half_way = back((into(value) + generator.uniform(into(range_.low), into(range_.high))) / 2)
    whole = isinstance(range_.low, int) and isinstance(range_.high, int)
    return round(half_way) if whole else min(max(half_way, range_.low), range_.high)
