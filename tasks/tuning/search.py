"""Searches and their trials: what is tuned and on which data, the suggested trials and their outcomes."""

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models import fingerprint
from oneclass.models.evaluation.holdout import choose_held_out_edges, split_matrix
from oneclass.models.fit_options import FitOptions, ValidationUsers
from oneclass.models.memory_estimates import LogSize
from oneclass.models.numerics.sequential_histories import copy_order
from oneclass.models.numerics.threads import kernel_threads
from oneclass.models.registry import MODELS
from oneclass.models.settings import ModelSettings, SearchSpace
from oneclass.tasks.errors import InputError
from oneclass.tasks.protocols import PROTOCOLS
from oneclass.tasks.stores import matrices, resources
from oneclass.tasks.stores.checksums import compute_key
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import Part, SplitMatrices

GIVEN_SHARE = 0.2  # share of a user's training edges in the validation part of `given`
MAX_VALIDATION_USERS = 1000  # of a sample
MAX_COST_RATIO = 8  # of a fit in an automatic search, over that of the initial settings
MIN_LIMIT_SECONDS, MIN_LIMIT_BYTES = 20.0, 10**9  # of such a fit, which is allowed so much in any case


@dataclass(frozen=True)
class ValidationData:
    """The matrices by which settings are chosen.

    Attributes:
        metric: the metric to maximize, one of `models.evaluation.metrics`.
        train: (training users, items), the edges that every trial is fitted on.
        part: users with the edges to find.
        explicit_negatives: (training users, items); None if the log has none.
        user_features, item_features: as in `SplitMatrices`.
    """

    metric: str
    train: csr_matrix
    part: Part
    explicit_negatives: csr_matrix | None = None
    user_features: csr_matrix | None = None
    item_features: csr_matrix | None = None

    @property
    def users(self) -> int:
        """Number of users with an edge to find."""
        return int(np.count_nonzero(np.diff(self.part.targets.indptr)))

    def fit_options(self, scratch: Path | None = None, *, stops: bool = False) -> FitOptions:
        """Return what a fit reads beside the training edges; with `stops` the validation users may end it early."""
        return FitOptions(
            validation=ValidationUsers(self.part.histories, self.part.targets) if stops else None,
            explicit_negatives=self.explicit_negatives,
            item_features=self.item_features,
            user_features=self.user_features,
            scratch=scratch,
        )


@functools.lru_cache(maxsize=3)  # a study needs the same parts at every trial, and once each larger ones and more users
def load_validation(
    home: Home,
    protocol: str,
    matrices_digest: str,
    seed: int,
    edges: int | None = None,
    items: int | None = None,
    users: int = MAX_VALIDATION_USERS,
) -> ValidationData:
    """Load the training and validation parts of a stored split, or a sample of them.

    Args:
        seed: of the hash that draws a validation part, if the split has none, and of the sample.
        edges: sample the training users so that they have about this many edges; None for all.
        items: number of items to keep, those with the most edges of these users; None for all.
        users: the most validation users of a sample.

    Raises:
        InputError: no user has an edge to find, or no edge is left to train on.
    """
    split = matrices.load_split(home, matrices_digest, parts=("validation",))
    data = select_validation(split, protocol, seed, home.limits.threads)
    if (edges or data.train.nnz) < data.train.nnz or (items or data.train.shape[1]) < data.train.shape[1]:
        data = _sample_log(data, edges or data.train.nnz, items or data.train.shape[1], users, seed)
    return _require_users(data, protocol)


def select_validation(split: SplitMatrices, protocol: str, seed: int, threads: int) -> ValidationData:
    """Return the training and validation parts of a split.

    Args:
        seed, threads: of the hash that draws a validation part, if the split has none.

    Raises:
        InputError: as `load_validation`.
    """
    metric = PROTOCOLS[protocol].tuned_by
    if part := split.parts.get("validation"):
        part = split.users_of("validation", 0, None) if part.stored_histories is None else part
        data = ValidationData(
            metric, split.histories, part, split.explicit_negatives, split.user_features, split.item_features
        )
    else:
        with kernel_threads(threads):
            data = _split_training_edges(split, metric, seed)
    return _require_users(data, protocol)


def _require_users(data: ValidationData, protocol: str) -> ValidationData:
    if not data.users or not data.train.nnz:
        raise InputError(
            f"{protocol}: {data.users} validation users with an edge to be found and {data.train.nnz} edges to "
            "train on; the log is too small to tune on."
        )
    return data


def _split_training_edges(split: SplitMatrices, metric: str, seed: int) -> ValidationData:
    if split.latest_mask is None:
        degrees = np.diff(split.train.indptr)
        counts = degrees >= 2 if split.protocol == "leave_one_out" else np.floor(GIVEN_SHARE * degrees)
        chosen = choose_held_out_edges(split.train, counts, seed, split.users, split.items)
    else:
        chosen = np.asarray(split.latest_mask)
    train, targets = split_matrix(split.train, chosen)
    rows = np.flatnonzero((np.diff(train.indptr) > 0) & (np.diff(targets.indptr) > 0)).astype(np.int32)
    histories = copy_order(split.histories, train, ~chosen)
    part = Part(stored_histories=histories[rows], targets=targets[rows], users=split.users[rows], rows=rows)
    return ValidationData(metric, histories, part, split.explicit_negatives, split.user_features, split.item_features)


def _sample_log(whole: ValidationData, edges: int, items: int, most: int, seed: int) -> ValidationData:
    """Sample users, keep the items most of them have, and at most `most` validation users."""
    generator, users = np.random.default_rng(seed), whole.train.shape[0]
    trained = _draw_rows(generator, np.arange(users), max(1, round(users * edges / whole.train.nnz)))
    train, part = whole.train[trained], whole.part
    degrees = np.bincount(train.indices, minlength=train.shape[1])
    most_popular = np.argsort(-degrees, kind="stable")[:items]
    known = np.sort(most_popular[degrees[most_popular] > 0])
    eligible = np.diff(part.targets[:, known].indptr) > 0
    if part.rows is not None:
        eligible &= np.isin(part.rows, trained)
    chosen = _draw_rows(generator, np.flatnonzero(eligible), most)
    histories, targets = (matrix[chosen][:, known].tocsr() for matrix in (part.histories, part.targets))
    rows = None if part.rows is None else np.searchsorted(trained, part.rows[chosen]).astype(np.int32)
    negatives = None if whole.explicit_negatives is None else whole.explicit_negatives[trained][:, known].tocsr()
    sampled = Part(histories, targets, part.users[chosen], rows, seen_items=part.seen_items)
    of_users = None if whole.user_features is None else whole.user_features[trained]
    of_items = None if whole.item_features is None else whole.item_features[known]
    return ValidationData(whole.metric, train[:, known].tocsr(), sampled, negatives, of_users, of_items)


def _draw_rows(generator: np.random.Generator, rows: np.ndarray, most: int) -> np.ndarray:
    return np.sort(generator.choice(rows, most, replace=False)) if most < len(rows) else rows


@dataclass(frozen=True)
class Search:
    """A search: the model, the data and the search space; equal searches share one study.

    Attributes:
        matrices_digest: the protocol's split in the matrix store, or its first fold.
        start: the initial settings, those of the first trial; settings that are not searched keep their values.
        space: the range of each searched setting.
        seed: for the draws of settings, for the models, and for drawing a validation part.
        edges: approximate number of training edges of a trial, from a sample of the users; None for all.
        items: number of items of a trial, those with the most edges; None for all.
        quick: a search of few trials: after the initial ones, some lie half way from the best of these to a random
            draw; the study lives in memory.
        initial_trials: values of the second trial of a quick search, the third, and so on; also of settings outside the
            space, which later trials take from the best one so far.
        batch_size: number of trials that are suggested from the same earlier trials, and may run concurrently.
        further_folds: the digests of the other folds. A trial is fitted on each, and evaluated by the users of all.
        validation_users: the most validation users, where a trial has a sample.
        weighs_recency: whether to choose how much less older likes weigh, once the other settings are found.
        whole: size of the whole log, on which a trial's settings are not to need far more memory than the initial ones
            (`limit_bytes`); None for no limit.
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
    further_folds: tuple[str, ...] = ()
    validation_users: int = MAX_VALIDATION_USERS
    weighs_recency: bool = False
    whole: LogSize | None = None

    @property
    def metric(self) -> str:
        return PROTOCOLS[self.protocol].tuned_by

    @property
    def folds(self) -> int:
        """Number of folds, 1 without."""
        return 1 + len(self.further_folds)

    def validation_data(self, home: Home) -> ValidationData:
        """Load the data that the trials are fitted on and evaluated by; that of the first fold."""
        return next(self.iterate_folds(home))

    def iterate_folds(self, home: Home) -> Iterator[ValidationData]:
        """Load the data of one fold after another; of the only split, without folds."""
        for digest in (self.matrices_digest, *self.further_folds):
            yield load_validation(home, self.protocol, digest, self.seed, self.edges, self.items, self.validation_users)

    def settings_of(self, values: Mapping[str, Any], data: ValidationData) -> ModelSettings:
        """Return the settings of a trial with these values, for a fit on this data."""
        return self.start.with_trial_values(values, data.train) if values else self.start

    def count_users(self, home: Home) -> int:
        """Count the validation users with an edge to find, of all folds."""
        return sum(data.users for data in self.iterate_folds(home))

    @property
    def source(self) -> str:
        """Digest of the model's source."""
        return fingerprint.fingerprint_model(MODELS[self.model])

    @property
    def study(self) -> str:
        """The study's name, with a digest of everything that must be equal for trials to be comparable."""
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
            *self.further_folds,
        ]
        return f"{self.model} {self.protocol} {compute_key(*parts)[:16]}"


@dataclass(frozen=True)
class TrialOutcome:
    """How a trial ended.

    Attributes:
        number: number of the trial among those that ended, from 1.
        settings: all settings of the model.
        values: the tried values of the search space, multiples as such; empty for the initial settings.
        value: the validation metric; for a pruned trial that of its last checkpoint, None if it was pruned for its time
            or failed.
        score: the model's score that reached the value.
        seconds: wall time of the fit, checkpoints included.
        checkpoint_seconds: wall time of the checkpoints.
        note: why it failed, or when it was pruned.
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
    """A suggested trial.

    Attributes:
        number: number of the trial in its study, from 1.
        params: values of the search space, in Optuna's form.
        values: the values to try, multiples as such; empty for the initial settings.
        medians: by percent of the epochs, the value below which the fit is stopped.
        max_seconds: wall time after which the fit is stopped.
    """

    number: int
    params: dict[str, Any]
    values: dict[str, Any]
    medians: dict[int, float]
    max_seconds: float = math.inf


@dataclass(frozen=True)
class TrialResult:
    """An ended trial, to be recorded in the study.

    Attributes:
        checkpoints: the value at each checkpoint, by percent of the epochs.
    """

    trial: Trial
    outcome: TrialOutcome
    checkpoints: dict[int, float]


def limit_seconds(initial: TrialOutcome | None) -> float:
    """Return the wall time that a fit may take in an automatic search, given the trial of the initial settings.

    Such a trial costs more than its gain is worth: the run would fit these settings on the whole log as well. Where
    fits are short, the limit does not bind, so that a search is the same on every machine.
    """
    if initial is None or initial.state != "done":
        return math.inf
    return max(MIN_LIMIT_SECONDS, MAX_COST_RATIO * (initial.seconds - initial.checkpoint_seconds))


def limit_bytes(needed: int) -> int:
    """Return the memory that a fit on the whole log may need, given that of the initial settings."""
    return min(resources.memory_limit(), max(MIN_LIMIT_BYTES, MAX_COST_RATIO * needed))


def best_outcome(outcomes: Iterable[TrialOutcome]) -> TrialOutcome | None:
    """Return the outcome with the highest value, the first of equals; None if no trial completed."""
    done = [outcome for outcome in outcomes if outcome.state == "done"]
    return max(done, key=lambda outcome: outcome.value or 0.0, default=None)


def format_setting(value: Any) -> str:
    """Format a setting's value for a line of text."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
