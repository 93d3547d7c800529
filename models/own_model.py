"""A model of one's own that is its mathematics: `fit` and `scores`, and annotated attributes as its settings."""

import inspect
from typing import Any

import numpy as np
from pydantic import create_model
from scipy.sparse import csr_matrix, issparse

from oneclass.models.base import Model
from oneclass.models.fit_options import FitOptions
from oneclass.models.settings import name_after

SPARSE_PARTS = ("data", "indices", "indptr", "shape")  # of a matrix, saved as `<name>.<part>`


class OwnModel(Model):
    """The base of models with a `fit(matrix)` and a `scores(histories)` and nothing else.

    `fit` learns from the float32 (users, items) CSR of likes, and `scores` returns an array, a row for each of the
    (users, items) histories. Annotated attributes with a value are settings, given by keyword. What `fit` sets is
    saved: arrays, sparse matrices, numbers and texts. Everything else, such as ids, seen items, empty histories,
    unknown items and evaluations, is that of every model.

    Example:
        >>> import oneclass
        >>> class Cosine(oneclass.OwnModel):
        ...     power: float = 0.5
        ...     def fit(self, matrix):
        ...         together = (matrix.T @ matrix).toarray()
        ...         self.similarity = together / (together.diagonal() ** self.power)[:, None]
        ...     def scores(self, histories):
        ...         return histories @ self.similarity
        >>> likes = [("ann", "tea"), ("ann", "milk"), ("bob", "tea"), ("bob", "milk"), ("cid", "tea"), ("dan", "rye")]
        >>> Cosine(power=1.0).fit(likes).recommend(users=["cid"], n=1)["item_id"].to_list()
        ['milk']
    """

    def __init_subclass__(cls, **options: Any) -> None:
        """Make settings of the annotated attributes, and let the base check what `fit` and `scores` get and return."""
        own = dict(vars(cls))
        fields = {name: kind for name, kind in inspect.get_annotations(cls, eval_str=True).items() if name in own}
        if fields and "Settings" not in own:
            declared: dict[str, Any] = {name: (kind, own[name]) for name, kind in fields.items()}
            cls.Settings = create_model(f"{cls.__name__}Settings", __base__=cls.Settings, **declared)
            for name in fields:
                setattr(cls, name, property(lambda model, of=name: getattr(model.params, of)))
        for name in ("fit", "scores"):
            if name in own:
                setattr(cls, f"_own_{name}", own[name])
                delattr(cls, name)
        if cls.__bases__ == (OwnModel,) and "name" not in own:
            cls.name = name_after(cls)
        super().__init_subclass__(**options)

    def _own_fit(self, matrix: csr_matrix) -> Any:
        """Learn from a matrix: the `fit` of the model's author."""
        raise NotImplementedError(f"{type(self).__name__}: define fit(self, matrix)")

    def _own_scores(self, histories: csr_matrix) -> Any:
        """Score the items for histories: the `scores` of the model's author."""
        raise NotImplementedError(f"{type(self).__name__}: define scores(self, histories)")

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        for name in self._learned():  # by an earlier fit
            delattr(self, name)
        self._own_fit(interactions)

    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        found: Any = self._own_scores(histories)
        # scipy-stubs gives what `issparse` finds no attribute
        dense = found.toarray() if issparse(found) else found  # pyright: ignore[reportAttributeAccessIssue]
        scores = np.array(dense, dtype=np.float32)
        if scores.shape != histories.shape:
            raise ValueError(
                f"{type(self).__name__}.scores: returns an array of shape {scores.shape} for histories of shape "
                f"{histories.shape}; return a row for each history and a column for each item"
            )
        return scores

    def _learned(self) -> dict[str, Any]:
        """Return what `fit` has set, but for names that begin with `_`."""
        known = {"settings", "params", "seed", "threads", *Model.__annotations__}
        return {name: value for name, value in vars(self).items() if name not in known and name[0] != "_"}

    def _arrays(self) -> dict[str, np.ndarray]:
        arrays = {}
        for name, value in self._learned().items():
            if issparse(value):
                table = csr_matrix(value)  # pyright: ignore[reportCallIssue, reportArgumentType]  (see `_scores`)
                arrays |= {f"{name}.{part}": np.asarray(getattr(table, part)) for part in SPARSE_PARTS}
            elif isinstance(value, np.ndarray | np.generic | int | float | str):
                arrays[name] = np.asarray(value)
            else:
                raise TypeError(
                    f"{type(self).__name__}.fit: sets {name}, a {type(value).__name__}, which cannot be saved; set "
                    "arrays, sparse matrices, numbers and texts"
                )
        return arrays

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        for name in {name.partition(".")[0] for name in arrays if "." in name}:
            data, indices, indptr, shape = (arrays.pop(f"{name}.{part}") for part in SPARSE_PARTS)
            setattr(self, name, csr_matrix((data, indices, indptr), shape=tuple(shape.tolist())))
        for name, array in arrays.items():
            setattr(self, name, array if array.ndim else array.item())
