"""The interface of every model: fit, fold in, score, recommend, save and load."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, cast

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models import memory_estimates
from oneclass.models.fit_options import DEFAULT_OPTIONS, WIDTH_SETTINGS, FitOptions, Start
from oneclass.models.numerics.matmul import dense_times, normalize_columns
from oneclass.models.numerics.threads import kernel_threads
from oneclass.models.numerics.top_k import top_items
from oneclass.models.numerics.validation import (
    check_interactions,
    count_item_degrees,
    drop_unknown_entries,
    single_item_histories,
)
from oneclass.models.settings import ModelSettings

if TYPE_CHECKING:
    from oneclass.models.negatives.distributions import NegativeDistribution

SettingsT = TypeVar("SettingsT", bound=ModelSettings)


class InferenceCache:
    """The part of a model that keeps; of a loaded one several threads may ask at once."""

    _cache: dict[str, Any] | None = None  # None in a fit, whose arrays may still change

    def kept(self, name: str, make: Callable[[], Any]) -> Any:
        """`make()`, what every block of scores needs of all items: once for a loaded model, anew each time in a fit."""
        if self._cache is None:
            return make()
        if name not in self._cache:
            self._cache[name] = make()
        return self._cache[name]

    def cached_for_block(self, name: str, histories: csr_matrix, make: Callable[[], Any]) -> Any:
        """`make()`, kept by a loaded model for the block that was asked for last."""
        if self._cache is None:
            return make()
        arrays = (getattr(histories, name, None) for name in ("indptr", "indices", "data", "places"))
        asked = tuple(array.tobytes() for array in arrays if array is not None)
        last, found = self._cache.get(name, (None, None))
        if last != asked:
            self._cache[name] = asked, (found := make())
        return found


class Model(InferenceCache, ABC, Generic[SettingsT]):
    """An estimator for one-class data. Of a loaded model several threads may ask for scores at once.

    Attributes:
        settings: the settings that the model was made with.
        params: the effective settings, with those that `settings` leaves to the log; `fit` and `load` set them, and the
            methods of a model read no others.
        seed: the seed of every random draw.
        threads: numba threads that `fit` and `scores` use; the result does not depend on their number.
        item_degrees: int64 (items,), the number of training edges of each item; set by `fit`.
        draws_nothing: whether a fit draws nothing at random, so that it is the same for every seed.
        scorable_each_epoch: whether `on_epoch` may call `scores`, which then uses what has been learned so far.
        warm_startable: whether `fit` can begin at an earlier fit.
        stops_early: whether `fit` keeps the epoch that is best on the validation users it is given.
        cost_is_of_items: whether a fit on fewer users takes about as long, as its cost is that of the items' Gram matrix.
        block_bytes: bytes of scores best made at once, where a block reads no large table: what a cache holds.
        item_matrices: how many dense float32 (items, items) arrays a fit holds at once, on any log.
        extra: the optional extra that has to be installed with the package, if the model needs one.
    """

    name: ClassVar[str]
    Settings: ClassVar[type[ModelSettings]]
    score_names: ClassVar[tuple[str, ...]] = ("score",)
    is_deterministic: ClassVar[bool] = False
    warm_startable: ClassVar[bool] = False
    scores_each_epoch: ClassVar[bool] = False
    stops_early: ClassVar[bool] = False
    cost_depends_on_items: ClassVar[bool] = False
    block_bytes: ClassVar[int] = 1 << 23
    item_matrices: ClassVar[int] = 0
    extra: ClassVar[str | None] = None

    item_degrees: np.ndarray

    def __init__(self, settings: SettingsT | None = None, *, seed: int = 0, threads: int = 1) -> None:
        # A ClassVar cannot name the type variable: each model's `Settings` is its `SettingsT`.
        self.settings = self.params = settings if settings is not None else cast(SettingsT, self.Settings())
        self.seed = seed
        self.threads = threads

    @property
    def item_count(self) -> int:
        """Items (columns) that the model was fitted on."""
        return len(self.item_degrees)

    @property
    def users_at_once(self) -> int:
        """Users of a block of scores, where many are scored."""
        matrices = self.matrices_on(self.item_count, int(self.item_degrees.sum()))
        return memory_estimates.users_per_block(self.item_count, matrices, self.block_bytes)

    @classmethod
    def matrices_on(cls, items: int, edges: int) -> int:
        """`item_matrices` of a fit on a log of so many items and edges; each block of scores then reads one of them."""
        return cls.item_matrices

    @classmethod
    def block_sizes(cls, settings: Any, items: int) -> memory_estimates.Sizes | None:
        """What a fit with these settings holds where users are cut into blocks; None where they are not."""
        return None

    @classmethod
    def fit_bytes(cls, settings: Any, shape: tuple[int, int], edges: int) -> int:
        """Bytes that a fit in one process takes, its blocks one after another; arguments as of `memory.fit_bytes`."""
        users, items = shape
        if sizes := cls.block_sizes(settings, items):
            of_block = memory_estimates.estimate_block_bytes(
                sizes, -(-users // settings.blocks), -(-edges // settings.blocks)
            )
            return (
                memory_estimates.estimate_coordinator_bytes(sizes, settings.blocks, shape, cls.item_matrices) + of_block
            )
        return memory_estimates.estimate_fit_bytes(
            shape, edges, getattr(settings, "factors", 0), cls.matrices_on(items, edges)
        )

    def fit(self, interactions: csr_matrix, options: FitOptions = DEFAULT_OPTIONS) -> Self:
        """Learn from the observed graph G. An earlier fit of this model is forgotten.

        Args:
            interactions: (users, items) CSR with sorted, unique column indices; a stored entry is an edge,
                its value the number of events behind it (models of binary data read the pattern only).
            options: where to begin, the validation users, the checkpoint folder, and the callback after every pass.

        Raises:
            TypeError: it is not a `csr_matrix`, or its values are not real numbers.
            ValueError: the matrix has no edge, columns that are not sorted or come twice, a value that is not a positive
                finite number, or a shape that the model cannot take; or the options do not fit the model or the matrix.
        """
        degrees, self._cache = self._degrees(interactions, options), None
        self.check_options(interactions.shape, options)
        self.item_degrees = degrees
        self.params = self.settings.resolve(interactions)
        self._fit(interactions, options)
        return self

    def check_options(self, shape: tuple[int, int], options: FitOptions) -> None:
        """Refuse options that do not go with the model, or with a matrix of that shape.

        Raises:
            ValueError: the model cannot begin at an earlier fit, or not at this one, or the shapes do not agree.
        """
        if options.start:
            self._check_start(shape, options.start)
        if options.validation:
            histories, targets = options.validation.histories.shape, options.validation.targets.shape
            if histories != targets or histories[1] != shape[1]:
                raise ValueError(
                    f"validation users: the histories have the shape {histories} and the targets {targets}; "
                    f"give both one row for each user and {shape[1]} columns, as many as the matrix has"
                )

    def fold_in(self, histories: csr_matrix) -> Any:
        """What represents users who were not in training, by default their (users, items) histories themselves."""
        return histories

    def scores(
        self,
        histories: csr_matrix,
        *,
        users: np.ndarray | None = None,
        items: np.ndarray | None = None,
        score: str | None = None,
    ) -> np.ndarray:
        """Utilities by which items are ranked.

        Args:
            histories: (block, items) CSR, what each user likes, `SequentialHistories` where `params.reads_order`. Items
                without a training edge are ignored, with a warning; an empty history is scored by popularity.
            users: (block,) rows of the training matrix, of users who were in training: what was learned of them is used.
            items: columns to score, all by default.
            score: one of `score_names`, the first by default.

        Returns:
            float32 (block, items), higher is better. Seen items are not masked.

        Raises:
            TypeError: the histories are not a `csr_matrix`, or their values are not real numbers.
            ValueError: their columns are not sorted or come twice, a value is not a positive finite number, there is not
                one of `users` for each of them, they do not tell an order that is read, or the model has no such score.
        """
        score = self.score_names[0] if score is None else score
        if score not in self.score_names:
            raise ValueError(f"{self.name} has no score {score!r}; it has {', '.join(self.score_names)}")
        scores = self.scores_of_training_users(self._score_block(histories, users), users, score)
        return scores if items is None else scores[:, items]

    def scores_of_training_users(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        """`scores` of histories that `scores` of a model fitted on the same edges was given, which has checked them."""
        return self._score_empty_histories(self._scores(histories, users, score), histories, users)

    def iterate_scores(
        self, histories: csr_matrix, *, users: np.ndarray | None = None
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Each of `score_names` with its `scores`, one after the other; what they have in common is computed once."""
        histories = self._score_block(histories, users)
        for score, scores in zip(self.score_names, self._iterate_scores(histories, users), strict=True):
            yield score, self._score_empty_histories(scores, histories, users)

    def recommend(
        self, histories: csr_matrix, n: int, *, users: np.ndarray | None = None, score: str | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The n best items for each user, without those in the history.

        Returns:
            (ids, scores): int32 and float32, (block, n), best first. Of equal scores the lower id comes first. Where
            fewer than n items are left, the rest is filled with id -1 and score -inf.
        """
        scores = self.scores(histories, users=users, score=score)
        with kernel_threads(self.threads):
            return top_items(scores, histories.indptr, histories.indices, n)

    @classmethod
    def component_settings(cls, settings: Any) -> "list[type[Model]]":
        """The other estimators that a model with these settings is made of; none, by default. `ValueError`: it cannot be."""
        return []

    def like(
        self, histories: csr_matrix, *, users: np.ndarray | None = None, items: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Mean and standard deviation of the like probability; None if the model has no such probability.

        Args:
            histories: as in `scores`.
            users: as in `scores`.
            items: (n,) columns for all users, or (block, n) columns for each user, padded with -1; all by default.

        Returns:
            float32 (block, n) each; NaN for an item of -1.
        """
        return None

    def contributions(self, history: csr_matrix, items: np.ndarray) -> np.ndarray | None:
        """What each item of one user's history adds to the scores of other items; None if scores are not such sums.

        Args:
            history: (1, items) CSR.
            items: int (n,), the columns that are scored.

        Returns:
            float32 (entries of the history, n), rows in the order of `history.indices`. A column's sum is the score
            `score`, less the part that is the same for every user. Where all are zero, popularity may have placed the
            item (`models.numerics.popularity_fallback`), and the score is not a sum.
        """
        return None

    def item_vectors(self) -> np.ndarray | None:
        """float32 (items, K), what the model learned of each item as factors; None if it has none."""
        return None

    def similar_items(self, items: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """The n items most like each, itself left out: by the cosine of their vectors.

        Without `item_vectors`, by the scores of a history of that one item: of weights between items, these weights.

        Args:
            items: int (block,), columns.

        Returns:
            (ids, similarities): int32 and float32, (block, n), as `recommend` gives them.

        Raises:
            ValueError: the model says nothing of one item beside another.
        """
        alone = single_item_histories(items, self.item_count)
        with kernel_threads(self.threads):
            if (vectors := self.item_vectors()) is None:
                scores = self.scores(alone)
            else:
                columns = self.kept("unit vectors", lambda: normalize_columns(vectors))
                scores = dense_times(np.ascontiguousarray(columns[:, items].T), columns)
            return top_items(scores, alone.indptr, alone.indices, n)

    def negative_distribution(self) -> "NegativeDistribution | None":
        """The law of the negatives that `like` is learned from; None if the model has no `like` or no negatives."""
        return None

    def save(self, folder: Path) -> None:
        """Write every fitted array (`<name>.npy`) and `settings.json` into an existing folder."""
        for name, array in {"item_degrees": self.item_degrees, **self._arrays()}.items():
            np.save(folder / f"{name}.npy", array, allow_pickle=False)
        given, resolved = (settings.model_dump(mode="json") for settings in (self.settings, self.params))
        description = {"model": self.name, "seed": self.seed, "settings": given, "resolved": resolved}
        (folder / "settings.json").write_text(json.dumps(description, indent=2, sort_keys=True) + "\n")

    @classmethod
    def load(cls, folder: Path, *, threads: int = 1) -> Self:
        """The model that `save` wrote; its arrays are memory-mapped."""
        description = json.loads((folder / "settings.json").read_text())
        if description["model"] != cls.name:
            raise ValueError(f"{folder}: holds a {description['model']}, not a {cls.name}")
        model = cls(
            cast(SettingsT, cls.Settings.from_saved(description["settings"])), seed=description["seed"], threads=threads
        )
        model.params = cls.Settings.from_saved(
            description.get("resolved", description["settings"])
        )  # absent in early fits
        # As plain arrays: each look into a `memmap` costs microseconds.
        arrays = {file.stem: np.asarray(np.load(file, mmap_mode="r")) for file in folder.glob("*.npy")}
        model.item_degrees = arrays.pop("item_degrees")
        model._restore(arrays)
        model._cache = {}
        return model

    def fold_in_users(self, histories: csr_matrix) -> Any:
        """`fold_in`, kept by a loaded model for the block that was asked for last: its scores and `like` share it."""
        return self.cached_for_block("fold-in", histories, lambda: self.fold_in(histories))

    def _known(self, histories: csr_matrix) -> csr_matrix:
        """The histories without the items that have no training edge, with `item_count` columns; `check_matrix`."""
        return drop_unknown_entries(histories, self.kept("trained", lambda: self.item_degrees > 0), self.name)

    def _degrees(self, interactions: csr_matrix, options: FitOptions) -> np.ndarray:
        """The items' degrees, int64 (items,), of a matrix on which the model can be fitted, which is checked."""
        return count_item_degrees(check_interactions(interactions))

    def _check_start(self, shape: tuple[int, int], start: Start) -> None:
        previous = start.previous
        if not self.warm_startable:
            raise ValueError(f"{self.name} cannot begin at an earlier fit")
        if previous.name != self.name:
            raise ValueError(f"{self.name} cannot begin at a fit of {previous.name}; give it one of its own kind")
        for name in WIDTH_SETTINGS:
            own, other = (getattr(one.settings, name, None) for one in (self, previous))
            if own != other:
                raise ValueError(
                    f"{name}: {own} here, {other} in the fit to begin at; make them equal, or fit without a start"
                )
        if (len(start.users), len(start.items)) != shape:
            raise ValueError(
                f"the start names places for {len(start.users)} users and {len(start.items)} items; "
                f"the matrix is {shape[0]} x {shape[1]}"
            )

    @abstractmethod
    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        """Learn; `fit` has checked `interactions` and `options` and has set `count_item_degrees`."""

    @abstractmethod
    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        """A new float32 (block, items) array; the caller overwrites the rows of empty histories."""

    def _iterate_scores(self, histories: csr_matrix, users: np.ndarray | None) -> Iterator[np.ndarray]:
        """`_draw_score_variants` by each of `score_names`; for a model of which they share work to override."""
        return (self._scores(histories, users, score) for score in self.score_names)

    def _score_block(self, histories: csr_matrix, users: np.ndarray | None) -> csr_matrix:
        """Histories that are known, one for each of the users."""
        histories = self._known(histories)
        if users is not None and len(users) != histories.shape[0]:
            raise ValueError(f"{len(users)} users but {histories.shape[0]} histories; give one history for each user")
        return histories

    def _score_empty_histories(self, scores: np.ndarray, histories: csr_matrix, users: np.ndarray | None) -> np.ndarray:
        """The scores, those of an unseen user with an empty history replaced by popularity."""
        answered = len(scores) == 1 and len(histories.indices)  # as most histories that are asked for alone
        if users is None and not answered and (empty := histories.indptr[1:] == histories.indptr[:-1]).any():
            scores[empty] = self.item_degrees.astype(np.float32)
        return scores

    def _arrays(self) -> dict[str, np.ndarray]:
        """Fitted arrays by name, `count_item_degrees` excepted."""
        return {}

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Take back what `_split_arrays` gave."""
        for name, array in arrays.items():
            setattr(self, name, array)
