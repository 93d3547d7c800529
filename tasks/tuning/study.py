"""The studies of a data set, in `<home>/<dataset>/tuning/study.db`: Optuna's own tables, for its own tools too.

A trial that ended has an `Outcome` among its attributes. A trial without one was cut off and does not count: the next
trial gets the same settings, because a trial's draws depend only on the seed and on how many trials ended before it.
"""

import dataclasses
import functools
import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState
from sqlalchemy import URL

from models import fingerprint
from models.base import ModelSettings
from models.catalogue import MODELS
from models.search_space import Choice, SearchSpace, Span
from tasks.protocols import PROTOCOLS
from tasks.stores.home import Home

optuna.logging.disable_default_handler()  # the flow says what happens

STATES = {"done": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}


@dataclass(frozen=True)
class Search:
    """What is tuned, and where; equal searches share one study.

    Attributes:
        matrices_digest: the protocol's split in the matrix store.
        start: the settings of the first trial; all trials keep those that are not searched.
        space: the range of each setting that is searched.
        seed: for the draws of settings, for the models, and for cutting a validation part.
    """

    model: str
    protocol: str
    matrices_digest: str
    start: ModelSettings
    space: SearchSpace
    seed: int = 0

    @property
    def metric(self) -> str:
        return PROTOCOLS[self.protocol].tuned_by

    @property
    def source(self) -> str:
        """Digest of the model's source."""
        return fingerprint.of_model(MODELS[self.model])

    @property
    def study(self) -> str:
        """The study's name, with a digest of all that must be equal for the values of two trials to be comparable."""
        fixed = self.start.model_dump(mode="json", exclude=set(self.space))
        space = {name: repr(range_) for name, range_ in self.space.items()}
        parts = [self.matrices_digest, self.metric, fixed, space, self.seed]
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
        return f"{self.model} {self.protocol} {digest}"


@dataclass(frozen=True)
class Outcome:
    """How a trial ended.

    Attributes:
        number: counts the trials that ended, from 1.
        settings: all of the model's.
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


class Study:
    """One study in the home's database, created where it does not exist."""

    def __init__(self, home: Home, search: Search) -> None:
        self.search = search
        self._study = optuna.create_study(
            storage=_storage(home),
            study_name=search.study,
            direction="maximize",
            pruner=optuna.pruners.MedianPruner(n_startup_trials=5),
            load_if_exists=True,
        )

    def begin(self) -> None:
        """Close the trials that a cut-off run left open; queue the settings to begin at, unless they were tried before."""
        for trial in self._study.get_trials(states=(TrialState.RUNNING,)):
            self._study.tell(trial.number, state=TrialState.FAIL)
        start = self.search.start.model_dump(mode="json")
        waiting = [trial.user_attrs for trial in self._study.get_trials(states=(TrialState.WAITING,))]
        if {"settings": start} not in waiting and all(outcome.settings != start for outcome in self.outcomes()):
            nearest = {name: _nearest(range_, start[name]) for name, range_ in self.search.space.items()}
            self._study.enqueue_trial(nearest, user_attrs={"settings": start})

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

    def ask(self) -> tuple[optuna.Trial, dict[str, Any]]:
        """The next trial and its settings, the model's defaults included."""
        draw = np.random.SeedSequence([self.search.seed, len(self.outcomes())]).generate_state(1)[0]
        self._study.sampler = optuna.samplers.TPESampler(seed=int(draw))
        trial = self._study.ask({name: _distribution(range_) for name, range_ in self.search.space.items()})
        settings = trial.user_attrs.get("settings") or {**self.search.start.model_dump(mode="json"), **trial.params}
        return trial, settings

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


def _distribution(range_: Span | Choice) -> BaseDistribution:
    if isinstance(range_, Choice):
        return CategoricalDistribution(range_.values)
    whole = isinstance(range_.low, int) and isinstance(range_.high, int)
    return (IntDistribution if whole else FloatDistribution)(range_.low, range_.high, log=range_.log)


def _nearest(range_: Span | Choice, value: Any) -> Any:
    """The value itself where the search space holds it, else one of the space that stands for it."""
    if isinstance(range_, Choice):
        return value if value in range_.values else range_.values[0]
    if value is None:
        middle = math.sqrt(range_.low * range_.high) if range_.log else (range_.low + range_.high) / 2
        return round(middle) if isinstance(range_.low, int) and isinstance(range_.high, int) else middle
    return min(max(value, range_.low), range_.high)
