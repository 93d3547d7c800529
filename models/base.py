"""The interface of every model: fit, fold in, score, recommend, save and load."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models import memory_estimates
from oneclass.models.attributes.new_items import NewItemScorer, check_features
from oneclass.models.estimator import Estimator, SettingsT, show_progress
from oneclass.models.fit_options import DEFAULT_OPTIONS, FitOptions
from oneclass.models.memory_estimates import LogSize
from oneclass.models.numerics.top_k import find_top_contributions
from oneclass.models.numerics.validation import (
    check_interactions,
    count_item_degrees,
    drop_unknown_entries,
)
from oneclass.models.predictor import Predictor

if TYPE_CHECKING:
    from oneclass.models.negatives.distributions import NegativeDistribution

INTERACTIONS = "interactions"  # folder of a saved model with the ids


class InferenceCache:
    """Keep what a fitted model computes again and again: arrays of its own, and of the last block of histories."""

    _cache: dict[str, Any] | None = None  # None in a fit, whose arrays may still change

    def __getstate__(self) -> dict[str, Any]:
        """Leave what is cached out of copies and pickles."""
        return {**self.__dict__, "_cache": None if self._cache is None else {}}

    def compute_once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return `make()`, which does not depend on the users: computed once for a fitted model, each time in a fit."""
        if self._cache is None:
            return make()
        if name not in self._cache:
            self._cache[name] = make()
        return self._cache[name]

    def compute_once_for_block(self, name: str, histories: csr_matrix, make: Callable[[], Any]) -> Any:
        """Return `make()`, which a fitted model caches for the last block of histories."""
        if self._cache is None:
            return make()
        ages = getattr(histories, "event_ages", None)
        order = getattr(histories, "recency_ranks", None), *((ages.starts, ages.days) if ages else ())
        arrays = histories.indptr, histories.indices, histories.data, *order
        key = tuple(array.tobytes() for array in arrays if array is not None)
        last_key, value = self._cache.get(name, (None, None))
        if last_key != key:
            self._cache[name] = key, (value := make())
        return value


class Model(Estimator[SettingsT], Predictor, NewItemScorer, InferenceCache, ABC):
    """An estimator for one-class data. Scoring by a fitted model is thread-safe.

    Attributes:
        item_degrees: int64 (items,), the number of training edges of each item; set by `fit`.
        is_deterministic: whether a fit draws nothing at random, so that it is the same for every seed.
        scores_each_epoch: whether `on_epoch` may call `scores`, which then uses the parameters learned so far.
        warm_startable: whether `fit` can start at an earlier fit.
        cost_depends_on_items: whether a fit on fewer users takes about as long, since the items' Gram matrix dominates.
        cost_is_linear: whether the time of a fit is in proportion to the edges, as far as a sample of users can tell.
        block_bytes: bytes of a block of scores that fits the CPU's cache, for models whose blocks read no large table.
        min_block_users: users of a block even where their scores are larger, for models that read the whole log or all
            factors for each block.
        item_matrices: number of dense float32 (items, items) arrays that a fit holds at once, on any log.
        edge_seconds: about how many CPU seconds a fit with the default settings takes for each training edge.
        memory_hint: what makes a fit that needs too much memory smaller, as the end of a sentence.
        extra: the optional dependency of the package that the model needs, if any.
    """

    score_names: ClassVar[tuple[str, ...]] = ("score",)
    is_deterministic: ClassVar[bool] = False
    warm_startable: ClassVar[bool] = False
    scores_each_epoch: ClassVar[bool] = False
    cost_depends_on_items: ClassVar[bool] = False
    cost_is_linear: ClassVar[bool] = True
    block_bytes: ClassVar[int] = 1 << 23
    min_block_users: ClassVar[int] = 1
    item_matrices: ClassVar[int] = 0
    edge_seconds: ClassVar[float] = 5e-5
    memory_hint: ClassVar[str] = "give the run more memory"
    extra: ClassVar[str | None] = None

    item_degrees: np.ndarray

    def __init_subclass__(cls, **options: Any) -> None:
        """Name a class without a name after itself, in lower case with underscores."""
        if not hasattr(cls, "name"):
            cls.name = name_after(cls)
        super().__init_subclass__(**options)

    @property
    def item_count(self) -> int:
        """Number of items (columns) that the model was fitted on."""
        return len(self.item_degrees)

    @property
    def users_at_once(self) -> int:
        """Number of users in a block of scores when many are scored."""
        matrices = self.matrices_on(self.item_count, int(self.item_degrees.sum()))
        return memory_estimates.users_per_block(self.item_count, matrices, self.block_bytes, self.min_block_users)

    @classmethod
    def matrices_on(cls, items: int, edges: int) -> int:
        """Return `item_matrices` of a fit with this number of items and edges; every block of scores reads one."""
        return cls.item_matrices

    @classmethod
    def block_sizes(cls, settings: Any, items: int) -> memory_estimates.Sizes | None:
        """Return the memory per block of a fit by blocks of users; None if the fit is not by blocks."""
        return None

    @classmethod
    def fit_bytes(cls, settings: Any, log: LogSize) -> int:
        """Estimate the memory of a fit in one process, its blocks one after another.

        Args:
            log: the size of the (users, items) training matrix.
        """
        if sizes := cls.block_sizes(settings, log.items):
            blocks, shape = settings.blocks, (log.users, log.items)
            of_block = memory_estimates.estimate_block_bytes(sizes, -(-log.users // blocks), -(-log.edges // blocks))
            return memory_estimates.estimate_coordinator_bytes(sizes, blocks, shape) + of_block
        matrices = cls.matrices_on(log.items, log.edges)
        return memory_estimates.estimate_fit_bytes(log, getattr(settings, "factors", 0), matrices)

    @classmethod
    def fit_seconds(cls, log: LogSize) -> float:
        """Estimate the CPU seconds of a fit with the default settings, to compare models on one log."""
        return cls.edge_seconds * log.edges

    def fit(self, interactions: Any, options: FitOptions = DEFAULT_OPTIONS, *, progress: bool = False) -> Self:
        """Fit on the observed graph G, replacing an earlier fit of this model.

        Args:
            interactions: (users, items) CSR with sorted, unique column indices; a stored entry is an edge,
                its value the number of events (models of binary data read the pattern only). Or `oneclass.Interactions`
                or what it reads, such as a frame; the model then also answers by ids.
            options: the warm start, the validation users, the checkpoint folder, and the callback after every epoch.
            progress: draw a bar that moves after every epoch, in a terminal or a notebook.

        Raises:
            TypeError: it is not a `csr_matrix`, or its values are not real numbers.
            ValueError: the matrix has no edge, unsorted or duplicate columns, a value that is not a positive finite
                number, or a shape that the model cannot take; or the options do not match the model or the matrix.
        """
        interactions, options = self._read_interactions(interactions, options)
        degrees, self._cache = count_item_degrees(check_interactions(interactions)), None
        self.check_options(interactions.shape, options)
        self.item_degrees, self.item_features, self._cold = degrees, options.item_features, None
        self.params = self.settings.resolve(interactions)
        with show_progress(self.name, options) if progress else nullcontext(options) as watched:
            self._fit(interactions, watched)
        self._cache = {}
        return self

    def check_options(self, shape: tuple[int, int], options: FitOptions) -> None:
        """Check that options match the model and a matrix of this shape.

        Raises:
            ValueError: the model cannot start at an earlier fit, or not at this one, or the shapes differ.
        """
        if options.start:
            options.start.check(self, shape)
        for features, rows, side in zip(
            (options.user_features, options.item_features), shape, ("users", "items"), strict=True
        ):
            if features is not None:
                check_features(features, rows, side)
        if options.validation:
            histories, targets = options.validation.histories.shape, options.validation.targets.shape
            if histories != targets or histories[1] != shape[1]:
                raise ValueError(
                    f"validation users: the histories have the shape {histories} and the targets {targets}; "
                    f"give both one row for each user and {shape[1]} columns, as many as the matrix has"
                )

    def fold_in(self, histories: csr_matrix) -> Any:
        """Represent users who were not in training; by default by their (users, items) histories themselves."""
        return histories

    def scores(
        self,
        histories: csr_matrix,
        *,
        users: np.ndarray | None = None,
        items: np.ndarray | None = None,
        score: str | None = None,
    ) -> np.ndarray:
        """Score items; a higher score ranks higher.

        Args:
            histories: (block, items) CSR, each user's likes; `SequentialHistories` if `params.reads_order`, or to give
                the ages of events where `params.reads_times`. Items without a training edge are ignored, with a
                warning; an empty history is scored by popularity.
            users: (block,) rows of the training matrix, if these are training users: their learned parameters are used.
            items: columns to score, all by default.
            score: one of `score_names`, the first by default.

        Returns:
            float32 (block, items). Seen items are not masked.

        Raises:
            TypeError: the histories are not a `csr_matrix`, or their values are not real numbers.
            ValueError: their columns are unsorted or duplicate, a value is not a positive finite number, `users` and
                `histories` differ in length, the histories have another number of columns than the training matrix, the
                order is missing that the model reads, or the model has no such score.
            NotFittedError: the model is not fitted.
        """
        score, known = self._check_score(score), self._score_block(histories, users)
        scores = self.scores_of_training_users(known, users, score)
        return scores if items is None else scores[:, items]

    def scores_of_training_users(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        """Score histories as `scores` does, without its checks, for a component of a model that has made them."""
        return self._complete_scores(self._scores(histories, users, score), histories, users)

    def iterate_scores(
        self, histories: csr_matrix, *, users: np.ndarray | None = None
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yield each of `score_names` with its `scores`; shared work is done once."""
        histories = self._score_block(histories, users)
        for score, scores in zip(self.score_names, self._iterate_scores(histories, users), strict=True):
            yield score, self._complete_scores(scores, histories, users)

    @classmethod
    def component_settings(cls, settings: Any) -> "list[type[Model]]":
        """Return the estimators of the model's components, if it is a combination of others.

        Raises:
            ValueError: a component is unknown, or does not go into a combination.
        """
        return []

    @property
    def explains_cheaply(self) -> bool:
        """Whether `contributions` cost about as much as the user's scores, so that all users can be explained."""
        return True

    def contributions(self, history: csr_matrix, items: np.ndarray) -> np.ndarray | None:
        """Return what each item of one user's history adds to the scores of items; None if scores are not such sums.

        Args:
            history: (1, items) CSR.
            items: int (n,), the columns that are scored.

        Returns:
            float32 (entries of the history, n), rows in the order of `history.indices`. A column's sum is the score
            `score` without the part that is the same for every user. If all are zero, the item may be ranked by
            popularity (`models.numerics.popularity_fallback`), and the score is not a sum.
        """
        return None

    def find_reasons(self, histories: csr_matrix, items: np.ndarray, count: int) -> np.ndarray | None:
        """Return the columns of each history that contribute most to the scores of the user's items, those above zero.

        Args:
            items: int32 (block, n), padded with -1.

        Returns:
            int32 (block, n, count), the largest first, padded with -1; None if scores are not such sums.
        """
        return find_top_contributions(histories, items, self.contributions, count)

    def negative_distribution(self) -> "NegativeDistribution | None":
        """Return the distribution of the sampled negatives behind `like`; None if the model has no `like` or samples
        none.
        """
        return None

    def save(self, folder: str | Path) -> None:
        """Write every fitted array (`<name>.npy`) and `settings.json` into a folder, which is made if missing.

        Raises:
            NotFittedError: the model is not fitted.
        """
        folder, item_degrees = Path(folder), self.item_degrees
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in {"item_degrees": item_degrees, **self._feature_arrays(), **self._arrays()}.items():
            np.save(folder / f"{name}.npy", array, allow_pickle=False)
        given, resolved = (settings.model_dump(mode="json") for settings in (self.settings, self.params))
        if self.interactions is not None:
            self.interactions.save(folder / INTERACTIONS)
        description = {"model": self.name, "seed": self.seed, "settings": given, "resolved": resolved}
        (folder / "settings.json").write_text(json.dumps(description, indent=2, sort_keys=True) + "\n")

    @classmethod
    def load(cls, folder: str | Path, *, threads: int = 1) -> Self:
        """Load the model that `save` wrote, with memory-mapped arrays.

        Raises:
            FileNotFoundError: no model is saved in the folder.
            ValueError: the folder holds another model.
        """
        if not ((folder := Path(folder)) / "settings.json").exists():
            raise FileNotFoundError(f"{folder}: no model is saved here; give the folder that `save` wrote")
        description = json.loads((folder / "settings.json").read_text())
        if description["model"] != cls.name:
            raise ValueError(f"{folder}: holds a {description['model']}, not a {cls.name}")
        model = cls(
            cast(SettingsT, cls.Settings.from_saved(description["settings"])), seed=description["seed"], threads=threads
        )
        model.params = cast(SettingsT, cls.Settings.from_saved(description["resolved"]))
        # Plain arrays, since each access to a `memmap` costs microseconds.
        arrays = {file.stem: np.asarray(np.load(file, mmap_mode="r")) for file in folder.glob("*.npy")}
        model.item_degrees = arrays.pop("item_degrees")
        model._restore_features(arrays)
        model._restore(arrays)
        model._restore_interactions(folder / INTERACTIONS)
        model._cache = {}
        return model

    def fold_in_users(self, histories: csr_matrix) -> Any:
        """Fold in as `fold_in` does; a fitted model caches the last block, whose scores and `like` share it."""
        return self.compute_once_for_block("fold-in", histories, lambda: self.fold_in(histories))

    def _drop_unknown(self, histories: csr_matrix) -> csr_matrix:
        """Check the histories and drop the items without a training edge; `item_count` columns are left."""
        return drop_unknown_entries(histories, self.compute_once("trained", lambda: self.item_degrees > 0), self.name)

    @abstractmethod
    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        """Fit; `fit` has checked `interactions` and `options` and has set `item_degrees` and `params`."""

    @abstractmethod
    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        """Return a new float32 (block, items) array; the caller overwrites the rows of empty histories."""

    def _iterate_scores(self, histories: csr_matrix, users: np.ndarray | None) -> Iterator[np.ndarray]:
        """Yield `_scores` by each of `score_names`; a model whose scores share work overrides it."""
        return (self._scores(histories, users, score) for score in self.score_names)

    def _check_score(self, score: str | None) -> str:
        """Return the name of a score, the first by default."""
        score = self.score_names[0] if score is None else score
        if score not in self.score_names:
            raise ValueError(f"{self.name} has no score {score!r}; it has {', '.join(self.score_names)}")
        return score

    def _score_block(self, histories: csr_matrix, users: np.ndarray | None) -> csr_matrix:
        """Check the histories, one for each of the users, and drop unknown items."""
        histories = self._drop_unknown(histories)
        if users is not None and len(users) != histories.shape[0]:
            raise ValueError(f"{len(users)} users but {histories.shape[0]} histories; give one history for each user")
        return histories

    def _complete_scores(self, scores: np.ndarray, histories: csr_matrix, users: np.ndarray | None) -> np.ndarray:
        """Score an unseen user with an empty history by popularity, and items without an edge by their attributes."""
        is_single_history = len(scores) == 1 and len(histories.indices)  # the common case of a request for one user
        if users is None and not is_single_history and (empty := histories.indptr[1:] == histories.indptr[:-1]).any():
            scores[empty] = self._popularity()
        return scores if self.learns_attributes else self._fill_cold_columns(scores)

    def _arrays(self) -> dict[str, np.ndarray]:
        """Return the fitted arrays by name, without `item_degrees`."""
        return {}

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Set the arrays that `_arrays` returned."""
        for name, array in arrays.items():
            setattr(self, name, array)


def name_after(model: type[Model]) -> str:
    """Return the name of a class in lower case, its words divided by underscores."""
    return re.sub(r"(?<!^)(?=[A-Z][a-z])", "_", model.__name__).lower()
