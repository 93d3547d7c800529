"""What every model is: the estimator interface, its settings, and its saved form."""

import json
import warnings
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from pydantic import BaseModel, ConfigDict
from scipy.sparse import csr_matrix

from models import fitting
from models.fitting import NO_OPTIONS, FitOptions
from models.numerics.threads import kernel_threads
from models.numerics.top_items import top_items
from models.search_space import SearchSpace

if TYPE_CHECKING:
    from models.negatives.laws import NegativeLaw


class ModelSettings(BaseModel):
    """Settings of one model; frozen, and unknown keys are refused.

    Attributes:
        search_space: where tuning looks, by setting; what is not named stays as it is.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    search_space: ClassVar[SearchSpace] = {}


class Model(ABC):
    """An estimator for one-class data.

    Attributes:
        settings: the settings model that it was made with.
        seed: the one seed of every draw.
        threads: numba threads that `fit` and `scores` use; the result does not depend on it.
        item_degrees: int64 (items,), training edges of each item, after `fit`.
        scorable_each_epoch: whether `scores` serves in every call of `on_epoch`, with what was learned so far.
        warm_startable: whether `fit` can begin at an earlier fit; such a model has a setting `factors`.
        stops_early: whether `fit` keeps its best epoch by the validation users that it is given.
        extra: the optional extra of the installation that it needs, if any.
    """

    name: ClassVar[str]
    Settings: ClassVar[type[ModelSettings]]
    score_names: ClassVar[tuple[str, ...]] = ("score",)
    warm_startable: ClassVar[bool] = False
    scorable_each_epoch: ClassVar[bool] = False
    stops_early: ClassVar[bool] = False
    extra: ClassVar[str | None] = None

    def __init__(self, settings: ModelSettings | None = None, *, seed: int = 0, threads: int = 1) -> None:
        self.settings = settings if settings is not None else self.Settings()
        self.seed = seed
        self.threads = threads

    @property
    def item_count(self) -> int:
        """Items (columns) that the model was fitted on."""
        return len(self.item_degrees)

    def fit(self, interactions: csr_matrix, options: FitOptions = NO_OPTIONS) -> Self:
        """Learn from the observed graph G; nothing of an earlier fit of this model is left.

        Args:
            interactions: (users, items) CSR with sorted, unique column indices; a stored entry is an edge,
                its value the number of events behind it (models of binary data read the pattern only).
            options: where to begin, whom to watch, where to keep checkpoints, and whom to tell of every pass.

        Raises:
            ValueError: no edge, a value that is not a positive finite number, a shape the model cannot take, or
                options that do not go with the model or the matrix.
        """
        interactions = checked(interactions)
        fitting.check(self, interactions.shape, options)
        self.item_degrees = np.bincount(interactions.indices, minlength=interactions.shape[1])
        self._fit(interactions, options)
        return self

    def fold_in(self, histories: csr_matrix) -> Any:
        """Whatever represents users never seen, from their (users, items) histories; by default the histories."""
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
            histories: (block, items) CSR, what each user of the block is known to like. Columns that the
                model has not seen in training are ignored, with a warning; an empty row gets popularity.
            users: (block,) rows of the training matrix, when the block's users are training users; a model
                that learned something for each user takes it instead of folding the history in.
            items: columns to score, all by default.
            score: one of `score_names`, the first by default.

        Returns:
            float32 (block, items), higher is better. Seen items are not masked.
        """
        score = self.score_names[0] if score is None else score
        if score not in self.score_names:
            raise ValueError(f"{self.name} has no score {score!r}; it has {', '.join(self.score_names)}")
        histories = self._known(histories)
        scores = self._scores(histories, users, score)
        if users is None:
            scores[np.diff(histories.indptr) == 0] = self.item_degrees.astype(np.float32)
        return scores if items is None else scores[:, items]

    def recommend(
        self, histories: csr_matrix, n: int, *, users: np.ndarray | None = None, score: str | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The n best items for each user, those in the history left out.

        Returns:
            (ids, scores): int32 and float32, (block, n), best first, ties to the lower id; past the last
            item that is left, id -1 and score -inf.
        """
        scores = self.scores(histories, users=users, score=score)
        with kernel_threads(self.threads):
            return top_items(scores, histories.indptr, histories.indices, n)

    def like(
        self, histories: csr_matrix, *, users: np.ndarray | None = None, items: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Mean and standard deviation of the like probability; None where the model has no such probability.

        Args:
            items: columns, or (block, n) columns of each user's own, -1 where there is none; all by default.

        Returns:
            float32 (block, items) each; NaN for an item of -1.
        """
        return None

    def contributions(self, history: csr_matrix, item: int) -> np.ndarray | None:
        """What each item of one user's history adds to the score of another; None where scores are no such sums.

        Args:
            history: (1, items) CSR.
            item: the column that is scored.

        Returns:
            float32 (entries of the history,), in the order of `history.indices`. They sum to the score `score`,
            but for what the model gives every user alike.
        """
        return None

    def negative_law(self) -> "NegativeLaw | None":
        """What `like` holds likes against; None where the model has no `like`, or learns it from no negatives."""
        return None

    def save(self, folder: Path) -> None:
        """Write every fitted array (`<name>.npy`) and `settings.json` into an existing folder."""
        for name, array in {"item_degrees": self.item_degrees, **self._arrays()}.items():
            np.save(folder / f"{name}.npy", array, allow_pickle=False)
        description = {"model": self.name, "seed": self.seed, "settings": self.settings.model_dump(mode="json")}
        (folder / "settings.json").write_text(json.dumps(description, indent=2, sort_keys=True) + "\n")

    @classmethod
    def load(cls, folder: Path, *, threads: int = 1) -> Self:
        """The model that `save` wrote, its arrays memory-mapped."""
        description = json.loads((folder / "settings.json").read_text())
        if description["model"] != cls.name:
            raise ValueError(f"{folder}: holds a {description['model']}, not a {cls.name}")
        model = cls(cls.Settings(**description["settings"]), seed=description["seed"], threads=threads)
        arrays = {file.stem: np.load(file, mmap_mode="r", allow_pickle=False) for file in folder.glob("*.npy")}
        model.item_degrees = arrays.pop("item_degrees")
        model._restore(arrays)
        return model

    def _known(self, histories: csr_matrix) -> csr_matrix:
        """The histories without items that no training user has, with `item_count` columns."""
        seen = np.zeros(max(self.item_count, histories.shape[1]), dtype=bool)
        seen[: self.item_count] = self.item_degrees > 0
        known = seen[histories.indices]
        if known.all() and histories.shape[1] == self.item_count:
            return histories
        if not known.all():
            warnings.warn(
                f"{self.name}: {np.count_nonzero(~known)} history entries name items unseen in training; "
                "they are ignored",
                stacklevel=3,
            )
        indptr = np.concatenate([[0], np.cumsum(known)])[histories.indptr]
        parts = (histories.data[known], histories.indices[known], indptr.astype(histories.indptr.dtype))
        return csr_matrix(parts, shape=(histories.shape[0], self.item_count))

    @abstractmethod
    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        """Learn; `interactions` and `options` have been checked and `item_degrees` is set."""

    @abstractmethod
    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        """A new float32 (block, items) array; rows of empty histories are overwritten by the caller."""

    def _arrays(self) -> dict[str, np.ndarray]:
        """Fitted arrays by name, `item_degrees` excepted."""
        return {}

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Take back what `_arrays` gave."""
        for name, array in arrays.items():
            setattr(self, name, array)


def checked(interactions: csr_matrix) -> csr_matrix:
    """The matrix itself, when a model can be fitted on it.

    Raises:
        ValueError: naming what is wrong, and the first user (row) that shows it.
    """
    if interactions.nnz == 0:
        raise ValueError(f"the {interactions.shape[0]} x {interactions.shape[1]} matrix of interactions has no edge")
    bad = ~(np.isfinite(interactions.data) & (interactions.data > 0))
    if bad.any():
        entry = int(np.argmax(bad))
        row = int(np.searchsorted(interactions.indptr, entry, side="right")) - 1
        raise ValueError(
            f"user {row} (row), item {interactions.indices[entry]}: the count "
            f"{interactions.data[entry]} is not a positive finite number"
        )
    return interactions
