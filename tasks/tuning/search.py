"""What is tuned, and the trials of it: as they are asked for, as they are made, and how they ended."""

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models import fingerprint
from oneclass.models.evaluation.holdout import choose_held_out_edges, split_matrix
from oneclass.models.numerics.sequential_histories import with_recency_ranks
from oneclass.models.numerics.threads import kernel_threads
from oneclass.models.registry import MODELS
from oneclass.models.settings import ModelSettings, SearchSpace
from oneclass.tasks.errors import InputError
from oneclass.tasks.protocols import PROTOCOLS
from oneclass.tasks.stores import matrices
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import Part, SplitMatrices

GIVEN_SHARE = 0.2  # of a user's training edges, cut for the validation part of `given`
MAX_VALIDATION_USERS = 1000  # users at most who judge on a sample


@dataclass(frozen=True)
class ValidationData:
    """The matrices by which settings are chosen.

    Attributes:
        metric: what is maximized, one of `models.evaluation.metrics`.
        train: (training users, items), what every trial is fitted on.
        part: users with the edges to be found.
        negatives: (training users, items), what they considered and did not like; None where the log does not tell.
    """

    metric: str
    train: csr_matrix
    part: Part
    negatives: csr_matrix | None = None

    @property
    def users(self) -> int:
        """Users with an edge to be found."""
        return int(np.count_nonzero(np.diff(self.part.targets.indptr)))


@functools.lru_cache(maxsize=2)  # a study asks for the same parts at every trial, and once for larger ones
def load_validation(
    home: Home, protocol: str, matrices_digest: str, seed: int, edges: int | None = None, items: int | None = None
) -> ValidationData:
    """The training and validation parts of a stored split.

    Args:
        seed: of the hash that cuts a validation part, where one is drawn, and of the sample.
        edges: take a sample of the training users who have about so many edges together; None for all.
        items: take so many of the items, those with the most edges among these users; None for all.

    Raises:
        InputError: no user has an edge to be found, or nothing is left to train on.
    """
    if protocol == "strong_generalization":
        split = matrices.load_split(home, matrices_digest, parts=("validation",))
        found = ValidationData(PROTOCOLS[protocol].tuned_by, split.train, split.parts["validation"], split.negatives)
    else:
        split = matrices.load_split(home, matrices_digest, parts=())
        with kernel_threads(home.limits.threads):
            found = _split_training_edges(split, seed)
    if (edges or found.train.nnz) < found.train.nnz or (items or found.train.shape[1]) < found.train.shape[1]:
        found = _sample_log(found, edges or found.train.nnz, items or found.train.shape[1], seed)
    if not found.users or not found.train.nnz:
        raise InputError(
            f"{protocol}: {found.users} validation users with an edge to be found and {found.train.nnz} edges to "
            "train on; the log is too small to tune on."
        )
    return found


def _split_training_edges(split: SplitMatrices, seed: int) -> ValidationData:
    if split.ends is None:
        degrees = np.diff(split.train.indptr)
        counts = degrees >= 2 if split.protocol == "leave_one_out" else np.floor(GIVEN_SHARE * degrees)
        chosen = choose_held_out_edges(split.train, counts, seed, split.users, split.items)
    else:
        chosen = np.asarray(split.ends)
    train, targets = split_matrix(split.train, chosen)
    rows = np.flatnonzero((np.diff(train.indptr) > 0) & (np.diff(targets.indptr) > 0)).astype(np.int32)
    histories = with_recency_ranks(train, None if split.places is None else split.places[~chosen])
    part = Part(stored_histories=histories[rows], targets=targets[rows], users=split.users[rows], rows=rows)
    return ValidationData(PROTOCOLS[split.protocol].tuned_by, train, part, split.negatives)


def _sample_log(whole: ValidationData, edges: int, items: int, seed: int) -> ValidationData:
    """Some of the training users, the items that most of them have, and at most JUDGES users to judge by."""
    generator, users = np.random.default_rng(seed), whole.train.shape[0]
    trained = _draw_rows(generator, np.arange(users), max(1, round(users * edges / whole.train.nnz)))
    train, part = whole.train[trained], whole.part
    degrees = np.bincount(train.indices, minlength=train.shape[1])
    most = np.argsort(-degrees, kind="stable")[:items]
    known = np.sort(most[degrees[most] > 0])
    found = np.diff(part.targets[:, known].indptr) > 0
    if part.rows is not None:
        found &= np.isin(part.rows, trained)
    judges = _draw_rows(generator, np.flatnonzero(found), MAX_VALIDATION_USERS)
    histories, targets = (matrix[judges][:, known].tocsr() for matrix in (part.histories, part.targets))
    rows = None if part.rows is None else np.searchsorted(trained, part.rows[judges]).astype(np.int32)
    negatives = None if whole.negatives is None else whole.negatives[trained][:, known].tocsr()
    judged = Part(histories, targets, part.users[judges], rows)
    return ValidationData(whole.metric, train[:, known].tocsr(), judged, negatives)


def _draw_rows(generator: np.random.Generator, rows: np.ndarray, most: int) -> np.ndarray:
    return np.sort(generator.choice(rows, most, replace=False)) if most < len(rows) else rows


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
        quick: a search of few trials: the next ones lie half way from where it begins to a draw, and the study lasts no
            longer than the process.
        initial_trials: values that the second trial of a short search has, the third, and so on; also of settings outside the
            space, which later trials have from the best one so far.
        batch_size: trials of a round, each of which is asked for from the rounds before.
    """

    model: str
    protocol: str
    matrices_digest: str
    start: ModelSettings
    space: SearchSpace
    seed: int = 0
    edges: int | None = None
    items: int | None = None
    quick: bool = False
    initial_trials: Sequence[Mapping[str, Any]] = ()
    batch_size: int = 1

    @property
    def metric(self) -> str:
        return PROTOCOLS[self.protocol].tuned_by

    def validation_data(self, home: Home) -> ValidationData:
        """What the trials are fitted on and judged by."""
        return load_validation(home, self.protocol, self.matrices_digest, self.seed, self.edges, self.items)

    @property
    def source(self) -> str:
        """Digest of the model's source."""
        return fingerprint.fingerprint_model(MODELS[self.model])

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
            self.quick,
            [dict(values) for values in self.initial_trials],
            *([] if self.items is None else [f"{self.items} items"]),
            *([] if self.batch_size == 1 else [f"{self.batch_size} together"]),
        ]
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
        return f"{self.model} {self.protocol} {digest}"


@dataclass(frozen=True)
class TrialOutcome:
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
class Trial:
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
class TrialResult:
    """A trial that ended, for the study to keep.

    Attributes:
        checkpoints: the value at each, by percent of the epochs.
    """

    asked: Trial
    outcome: TrialOutcome
    checkpoints: dict[int, float]


def best_outcome(outcomes: Iterable[TrialOutcome]) -> TrialOutcome | None:
    """The one with the highest value, the first of equals; None where no trial was fitted to its end."""
    done = [outcome for outcome in outcomes if outcome.state == "done"]
    return max(done, key=lambda outcome: outcome.value or 0.0, default=None)
