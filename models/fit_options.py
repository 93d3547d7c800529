"""The options of a fit: warm start, validation users, callback, and where blocks of users are computed.

A warm start (`Start`) saves time only if the fit ends sooner. A model that stops on convergence of its objective does
so by that rule alone. A model with a schedule of passes or step sizes runs only the last quarter of it
(`skipped_epochs`), with the step sizes that any fit has there, since the large first steps would destroy what was
learned.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.settings import ModelSettings

if TYPE_CHECKING:
    from oneclass.models.distributed import BlockExecutor, RowLoader


@dataclass(frozen=True)
class Epoch:
    """One pass over the data, for progress lines.

    Attributes:
        number: number of the pass, from 1.
        of: total number of passes.
        seconds: wall time of this pass.
        values: figures that the model reports (loss, bound, step size), by name.
    """

    number: int
    of: int
    seconds: float
    values: Mapping[str, float] = field(default_factory=dict)


WIDTH_SETTINGS = ("factors", "hidden", "latent")  # settings that fix the widths of a fit's arrays


@dataclass(frozen=True, eq=False)
class Start:
    """An earlier fit to start at. New users and items start as in any other fit.

    Attributes:
        previous: a fitted model of the same kind, equal in WIDTH_SETTINGS.
        users, items: int (users,) and (items,): for each row and column of the matrix, its index in the matrix
            of `previous`, or -1 if it is new.
    """

    previous: Any
    users: np.ndarray
    items: np.ndarray

    def check(self, model: Any, shape: tuple[int, int]) -> None:
        """Check that a fit of a model on a matrix of this shape can begin here.

        Raises:
            ValueError: the model cannot begin at an earlier fit, or not at this one.
        """
        if not model.is_iterative:
            raise ValueError(f"{model.name} cannot begin at an earlier fit")
        if self.previous.name != model.name:
            raise ValueError(f"{model.name} cannot begin at a fit of {self.previous.name}; give it one of its own kind")
        for name in WIDTH_SETTINGS:
            own, earlier = (getattr(one.settings, name, None) for one in (model, self.previous))
            if own != earlier:
                raise ValueError(
                    f"{name}: {own} here, {earlier} in the fit to begin at; make them equal, or fit without a start"
                )
        if (len(self.users), len(self.items)) != shape:
            raise ValueError(
                f"the start has indices of {len(self.users)} users and {len(self.items)} items; "
                f"the matrix is {shape[0]} x {shape[1]}"
            )


WARM_START_SKIP = 0.75  # share of a schedule of passes


def copy_rows(own: np.ndarray, earlier: np.ndarray, indices: np.ndarray) -> None:
    """Copy rows of an earlier fit's array into `own`; indices as in `Start`, where -1 keeps the own row."""
    known = indices >= 0
    own[known] = earlier[indices[known]]


def skipped_epochs(passes: int, start: Start | None) -> int:
    """Return the number of a schedule's first passes that a fit skips: with a warm start, all but the last quarter."""
    return int(WARM_START_SKIP * passes) if start else 0


def sampling_seed(seed: int, interactions: csr_matrix, start: Start | None) -> int:
    """Return the seed of the draws in each pass; a warm start gets one that changes with the data.

    Reusing the seed across warm starts would overfit to one set of negatives.
    """
    return seed + interactions.nnz if start else seed


@dataclass(frozen=True, eq=False)
class ValidationUsers:
    """Users who are not in training, on whom the best epoch is chosen.

    Attributes:
        histories: (users, items) CSR, the edges to score from.
        targets: (users, items) CSR, the edges to rank high; disjoint from the histories.
    """

    histories: csr_matrix
    targets: csr_matrix


def _ignore_epoch(epoch: Epoch) -> None:
    """The default of `on_epoch`."""


def _find_no_component(name: str, settings: ModelSettings) -> None:
    """The default of `load_component`."""


@dataclass(frozen=True, eq=False)
class FitOptions:
    """The options of one fit; the model does not store them.

    Attributes:
        start: an earlier fit to start at, for a model that is `is_iterative`.
        validation: an autoencoder keeps the epoch of the best nDCG@100 on these users; other models ignore them.
        explicit_negatives: (users, items) CSR, items that training users considered and did not like, for a model whose
            settings say `reads_explicit_negatives`; None if the log has none.
        item_features: (items, F) CSR, the items' attributes encoded by `models.attributes.encoder`, in the order of the
            matrix; None without attributes.
        on_epoch: called after every pass.
        load_component: for a model that combines others: returns a stored fit on the same edges of a model's name and
            settings, or None.
        workers: the executor of blocks, for a model with a setting `blocks`, by default this process; others ignore
            this and the options below.
        rows: loads a block's rows of the matrix on a worker; None sends them with each call.
        scratch: a folder shared by all workers, in which the fit creates a folder for the state of its blocks, and
            removes it at its end. None for the machine's folder of temporary files.
    """

    start: Start | None = None
    validation: ValidationUsers | None = None
    explicit_negatives: csr_matrix | None = None
    item_features: csr_matrix | None = None
    on_epoch: Callable[[Epoch], None] = _ignore_epoch
    load_component: Callable[[str, ModelSettings], Any] = _find_no_component
    workers: "BlockExecutor | None" = None
    rows: "RowLoader | None" = None
    scratch: Path | None = None

    def check(self, model: Any, interactions: csr_matrix) -> None:
        """Check that the options match a model and a matrix.

        Raises:
            TypeError: features are no `csr_matrix`.
            ValueError: the model cannot start at an earlier fit, or not at this one, shapes differ, or an explicit
                negative is a like.
        """
        shape = interactions.shape
        if self.start:
            self.start.check(model, shape)
        if (negatives := self.explicit_negatives) is not None and model.settings.reads_explicit_negatives:
            if negatives.shape != shape:
                raise ValueError(f"explicit negatives: the shape {negatives.shape} beside likes of the shape {shape}")
            if both := csr_matrix(negatives.astype(bool).multiply(interactions.astype(bool))).nnz:
                raise ValueError(f"explicit negatives: {both} of them are likes too; an item is liked or it is not")
        if self.item_features is not None:
            from oneclass.models.attributes.new_items import check_features

            check_features(self.item_features, shape[1])
        if self.validation:
            histories, targets = self.validation.histories.shape, self.validation.targets.shape
            if histories != targets or histories[1] != shape[1]:
                raise ValueError(
                    f"validation users: the histories have the shape {histories} and the targets {targets}; "
                    f"give both one row for each user and {shape[1]} columns, as many as the matrix has"
                )

    def for_component(self) -> "FitOptions":
        """Return the options of a fit on the same users and items, for a component of the model."""
        return FitOptions(
            validation=self.validation,
            explicit_negatives=self.explicit_negatives,
            item_features=self.item_features,
        )


DEFAULT_OPTIONS = FitOptions()


def has_converged(before: float, now: float, tolerance: float) -> bool:
    """Whether an objective changed by less than a share of itself since the last check; never for a tolerance of 0."""
    return abs(now - before) < tolerance * abs(before)
