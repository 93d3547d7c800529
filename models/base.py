"""The base of every model: fit, fold in, score, recommend, save and load, on matrices of users x items.

A model is its mathematics: `_fit` sets what is learned, and `_scores` scores histories by it. What only some callers
need is imported when it is used: answers by ids (`models.by_id`), and the scores of new items by their attributes
(`models.attributes.new_items`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from scipy.sparse import csr_matrix, issparse

from oneclass.models.fit_options import DEFAULT_OPTIONS, FitOptions
from oneclass.models.numerics.validation import check_interactions, count_item_degrees
from oneclass.models.settings import Estimator, SettingsT

if TYPE_CHECKING:
    from oneclass.models.memory_estimates import FitCost, LogSize
    from oneclass.models.negatives.distributions import NegativeDistribution

Arrays = tuple[np.ndarray, np.ndarray]
Indices = np.ndarray | None  # of rows or columns


class Model(Estimator[SettingsT], ABC):
    """An estimator for one-class data. Scoring by a fitted model is thread-safe.

    Attributes:
        item_degrees: int64 (items,), the number of training edges of each item; set by `fit`.
        item_features: float32 (items, F) CSR, the items' attributes as given to `fit`; None without.
        ids: the `AnswersById` of a model that was fitted on `oneclass.Interactions` or a frame; None after a matrix.
        is_deterministic: whether a fit draws nothing at random, so that it is the same for every seed.
        is_iterative: whether a fit makes passes that improve the parameters, so that it can start at an earlier fit.
        scores_cold_items: whether `_scores` is right for items without an edge too, if the fit had attributes.
        explains_cheaply: whether `contributions` cost about as much as scores, so that all users can be explained.
        extra: the optional dependency of the package that the model needs, if any.
    """

    score_names: ClassVar[tuple[str, ...]] = ("score",)
    is_deterministic: ClassVar[bool] = False
    is_iterative: ClassVar[bool] = False
    scores_cold_items: ClassVar[bool] = False
    extra: ClassVar[str | None] = None

    explains_cheaply: bool = True
    item_degrees: np.ndarray
    item_features: csr_matrix | None = None
    ids: Any = None
    _cache: dict[str, Any] | None = None  # None in a fit, whose arrays may still change

    @property
    def item_count(self) -> int:
        """Number of items (columns) that the model was fitted on."""
        return len(self.item_degrees)

    @property
    def users_at_once(self) -> int:
        """Number of users in a block of scores when many are scored."""
        log = _load("memory_estimates").LogSize(1, self.item_count, int(self.item_degrees.sum()))
        return self.estimate_cost(self.params, log).users_per_block(self.item_count)

    @classmethod
    def estimate_cost(cls, settings: Any, log: "LogSize") -> "FitCost":
        """Estimate what a fit on a log of this size takes."""
        return _load("memory_estimates").FitCost.of_factors(log, getattr(settings, "factors", 0))

    def fit(self, interactions: Any, options: FitOptions = DEFAULT_OPTIONS, *, progress: bool = False) -> Self:
        """Fit on the observed graph G, replacing an earlier fit of this model.

        Args:
            interactions: (users, items) CSR with sorted, unique columns; a stored entry is an edge, its value the
                number of events. Or `oneclass.Interactions`, or what it reads, such as a frame; the model then also
                answers by ids.
            progress: draw a bar that moves after every epoch, in a terminal or a notebook.

        Raises:
            TypeError, ValueError: it is no matrix of counts with an edge, or the options do not match it or the model.
        """
        ids, matrix = None, interactions
        if not isinstance(interactions, np.ndarray) and not issparse(interactions):
            ids = _load("by_id").AnswersById.read(interactions)
            matrix, options = ids.table.matrix, ids.add_features(options)
        degrees, self._cache = count_item_degrees(check_interactions(matrix)), None
        options.check(self, matrix)
        self.ids, self.item_degrees, self.item_features = ids, degrees, options.item_features
        self.params = self.settings.resolve(matrix)
        bar = _load("progress").show_progress(options, self.name) if progress else nullcontext(options)
        with bar as watched, self._limit_threads():
            self._fit(matrix, watched)
        self._cache = {}
        return self

    def fold_in(self, histories: csr_matrix) -> Any:
        """Represent users who were not in training; by default by their (users, items) histories themselves.

        A fitted model caches the last block, whose scores and `like` share it.
        """
        with self._limit_threads():
            known = self.check_histories(histories)
            return self.compute_once("fold-in", lambda: self._fold_in(known), known)

    def scores(
        self, histories: csr_matrix, *, users: Indices = None, items: Indices = None, score: str | None = None
    ) -> np.ndarray:
        """Score items, float32 (block, items); a higher score ranks higher, and seen items are not masked.

        Args:
            histories: (block, items) CSR, each user's likes; `SequentialHistories` if `params.reads_order`, or to give
                the ages of events where `params.reads_times`. Items without a training edge are ignored, with a
                warning; an empty history is scored by popularity.
            users: (block,) rows of the training matrix, if these are training users: their learned parameters are used.
            items, score: columns, all by default, and one of `score_names`, the first by default.

        Raises:
            TypeError, ValueError: the histories are no matrix of counts with a column for each item and a row for each
                of the users, lack the order that the model reads, or the model is not fitted or has no such score.
        """
        score = self.score_names[0] if score is None else score
        if score not in self.score_names:
            raise ValueError(f"{self.name} has no score {score!r}; it has {', '.join(self.score_names)}")
        histories = self.check_histories(histories, users)
        with self._limit_threads():
            scores = self._complete_scores(self._scores(histories, users, score), histories, users)
        return scores if items is None else scores[:, items]

    def iterate_scores(self, histories: csr_matrix, *, users: Indices = None) -> Iterator[tuple[str, np.ndarray]]:
        """Yield each of `score_names` with its `scores`; shared work is done once."""
        histories = self.check_histories(histories, users)
        found = self._iterate_scores(histories, users)
        for score in self.score_names:
            with self._limit_threads():  # not around the `yield`, which runs the caller's code
                scores = self._complete_scores(next(found), histories, users)
            yield score, scores

    def check_histories(self, histories: csr_matrix, users: Indices = None) -> csr_matrix:
        """Return histories without the items that no training user has; if not one for each of the users, raise."""
        trained = self.compute_once("trained", lambda: self.item_degrees > 0)
        histories = _load("numerics.sequential_histories").drop_unknown_entries(histories, trained, self.name)
        if users is not None and len(users) != histories.shape[0]:
            raise ValueError(f"{len(users)} users but {histories.shape[0]} histories; give one history for each user")
        return histories

    def recommend(
        self,
        histories: Any = None,
        n: int = 10,
        *,
        users: Any = None,
        score: str | None = None,
        exclude_seen: bool = True,
    ) -> Any:
        """Recommend the n best items for each user, the best first; of equal scores the lower column comes first.

        Args:
            histories, users, score: as in `scores`. By ids: `users` of the fit, all by default, or the histories of
                other users as `oneclass.Interactions.histories` takes them.
            exclude_seen: whether to leave out the items of the history.

        Returns:
            (ids, scores): int32 and float32, (block, n); if fewer than n items are left, the rest is -1 and -inf.
            By ids: a frame of `user_id`, `rank`, `item_id`, `score`, and `like_mean` and `like_sd` if there are such.
        """
        if self.ids is not None and not isinstance(histories, csr_matrix):
            return self.ids.recommend(self, histories, users, n, score=score, exclude_seen=exclude_seen)
        known, size, found = self.check_histories(histories, users), self.users_at_once, []
        for first in range(0, max(1, known.shape[0]), size):
            block = slice(first, first + size)
            scores = self.scores(known[block], users=None if users is None else users[block], score=score)
            found.append(self.select_best(scores, histories[block], n, exclude_seen=exclude_seen))
        ids, best = zip(*found, strict=True)
        return np.concatenate(ids), np.concatenate(best)

    def select_best(self, scores: np.ndarray, histories: csr_matrix, n: int, *, exclude_seen: bool = True) -> Arrays:
        """Return the n best items by these scores of all items, as `recommend` does."""
        seen = histories if exclude_seen else csr_matrix(histories.shape)
        with self._limit_threads():
            return _load("numerics.top_k").top_items(scores, seen.indptr, seen.indices, n)

    def like(self, histories: Any = None, *, users: Any = None, items: Any = None) -> Any:
        """Return mean and standard deviation of the like probability, float32 (block, n) each; None without one.

        Args:
            histories, users: as in `recommend`. By ids: a frame of `user_id`, `item_id`, `like_mean`, `like_sd`.
            items: (n,) columns, or ids, for all users, or (block, n) columns, padded with -1; all by default.
        """
        if self.ids is not None and not isinstance(histories, csr_matrix):
            return self.ids.like(self, histories, users, items)
        with self._limit_threads():
            return self._like(histories, users=users, items=items)

    def similar_items(self, items: Any, n: int = 10) -> Any:
        """Find the n items most similar to each, (ids, similarities) as of `recommend`; by ids, if fitted on such."""
        with self._limit_threads():
            find = partial(_load("numerics.top_k").find_similar_items, self, n=n)
            return find(items) if self.ids is None else self.ids.name_similar(items, find)

    def item_vectors(self) -> np.ndarray | None:
        """Return the items' factors, float32 (items, K); None if the model has none."""
        return None

    def contributions(self, history: csr_matrix, items: np.ndarray) -> np.ndarray | None:
        """Return what each item of one history, (1, items), adds to the scores of `items`; None if these are no sums.

        Returns:
            float32 (entries of the history, len(items)), rows in the order of `history.indices`. A column's sum is the
            first score without what is the same for every user; if all are zero, the item may be ranked by popularity.
        """
        with self._limit_threads():
            return self._contributions(history, items)

    def negative_distribution(self) -> "NegativeDistribution | None":
        """Return the distribution of the sampled negatives behind `like`; None without such negatives."""
        return None

    def save(self, folder: str | Path) -> None:
        """Write every fitted array (`<name>.npy`) and `settings.json` into a folder, which is made if missing."""
        _load("model_files").write_model(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path, *, threads: int = 1) -> Self:
        """Load the model that `save` wrote, with memory-mapped arrays; refuse a folder without one or of another."""
        model = _load("model_files").read_model(cls, Path(folder), threads)
        if (table := Path(folder) / "interactions").exists():
            model.ids = _load("by_id").AnswersById.load(table)
        return model

    def compute_once(self, name: str, make: Callable[[], Any], histories: csr_matrix | None = None) -> Any:
        """Return `make()`, which a fitted model caches: for good, or for the last block of histories, if given."""
        if self._cache is None:
            return make()
        key = None if histories is None else _load("numerics.sequential_histories").identify_histories(histories)
        last_key, value = self._cache.get(name, (0, None))
        if last_key != key:
            self._cache[name] = key, (value := make())
        return value

    def __getstate__(self) -> dict[str, Any]:
        """Leave what is cached out of copies and pickles."""
        return {**self.__dict__, "_cache": None if self._cache is None else {}}

    @abstractmethod
    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        """Fit; `fit` has checked `interactions` and `options` and has set `item_degrees` and `params`."""

    @abstractmethod
    def _scores(self, histories: csr_matrix, users: Indices, score: str) -> np.ndarray:
        """Return a new float32 (block, items) array; the caller overwrites the rows of empty histories."""

    def _iterate_scores(self, histories: csr_matrix, users: Indices) -> Iterator[np.ndarray]:
        """Yield `_scores` by each of `score_names`; a model whose scores share work overrides it."""
        return (self._scores(histories, users, score) for score in self.score_names)

    def _like(self, histories: csr_matrix, *, users: Indices = None, items: Indices = None) -> Arrays | None:
        """Return `like` of a matrix of histories."""
        return None

    def _fold_in(self, histories: csr_matrix) -> Any:
        """Return `fold_in` of checked histories."""
        return histories

    def _contributions(self, history: csr_matrix, items: np.ndarray) -> np.ndarray | None:
        """Return `contributions`."""
        return None

    def _limit_threads(self) -> AbstractContextManager[None]:
        """Run the block's kernels on at most `threads` threads; every public method does, so that no kernel has to."""
        return _load("numerics.threads").kernel_threads(self.threads)

    def _complete_scores(self, scores: np.ndarray, histories: csr_matrix, users: Indices) -> np.ndarray:
        """Score an unseen user with an empty history by popularity, and items without an edge by their attributes."""
        if users is None and (empty := histories.indptr[1:] == histories.indptr[:-1]).any():
            scores[empty] = self._fill_cold_columns(self.item_degrees.astype(np.float32))
        return scores if self.scores_cold_items else self._fill_cold_columns(scores)

    def _fill_cold_columns(self, scores: np.ndarray) -> np.ndarray:
        """Set the scores of items without an edge, in place, to means of similar items, if the fit had attributes."""
        return scores if self.item_features is None else _load("attributes.new_items").fill_cold_columns(self, scores)

    def _arrays(self) -> dict[str, np.ndarray]:
        """Return the fitted arrays by name, without `item_degrees`: by default, all arrays among the attributes."""
        learned = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return {name: value for name, value in learned.items() if name != "item_degrees"}

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Set the arrays that `_arrays` returned."""
        for name, array in arrays.items():
            setattr(self, name, array)


def _load(module: str) -> Any:
    return import_module(f"oneclass.models.{module}")
