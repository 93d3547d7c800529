"""What is tuned, and the trials of it: as they are asked for, as they are made, and how they ended."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from models import fingerprint
from models.catalogue import MODELS
from models.search_space import SearchSpace
from models.settings import ModelSettings
from tasks.protocols import PROTOCOLS
from tasks.stores.home import Home
from tasks.tuning.validation import Validation, validation


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
        elsewhere: values that the second trial of a short search has, the third, and so on; also of settings outside the
            space, which later trials have from the best one so far.
        together: trials of a round, each of which is asked for from the rounds before.
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
    elsewhere: Sequence[Mapping[str, Any]] = ()
    together: int = 1

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
            [dict(values) for values in self.elsewhere],
            *([] if self.items is None else [f"{self.items} items"]),
            *([] if self.together == 1 else [f"{self.together} together"]),
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


@dataclass(frozen=True)
class Asked:
    """A trial that is to be made.

    Attributes:
        number: counts the trials of a study, from 1.
        params: values of the search space, as Optuna has them.
        values: what is tried, multiples as such; empty for the settings that the search begins at.
        medians: by percent of the epochs, the value below which the fit is stopped.
    """

    number: int
    params: dict[str, Any]
    values: dict[str, Any]
    medians: dict[int, float]


@dataclass(frozen=True)
class Made:
    """A trial that ended, for the study to keep.

    Attributes:
        checkpoints: the value at each, by percent of the epochs.
    """

    asked: Asked
    outcome: Outcome
    checkpoints: dict[int, float]


def best_of(outcomes: Iterable[Outcome]) -> Outcome | None:
    """The one with the highest value, the first of equals; None where no trial was fitted to its end."""
    done = [outcome for outcome in outcomes if outcome.state == "done"]
    return max(done, key=lambda outcome: outcome.value, default=None)
