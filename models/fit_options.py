"""The options of a fit: where to begin, the validation users, the callback, and where blocks of users are computed.

A fit that begins at an earlier one (`Start`) saves time only where it ends sooner. A model that stops where its objective
is level stops sooner by that rule alone. One with a schedule, of passes or of step sizes, makes only the end of it: the
last quarter of the passes (`skipped_epochs`), with the step sizes that any fit has there, as the large first steps would forget
what was learned.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.settings import ModelSettings


@dataclass(frozen=True)
class Epoch:
    """One pass over the data, for progress lines.

    Attributes:
        number: of the pass, from 1.
        of: the number of passes in all.
        seconds: wall time of this pass.
        values: what the model reports (loss, bound, step size), by name.
    """

    number: int
    of: int
    seconds: float
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Start:
    """An earlier fit to begin at. Users and items that are new since then begin as in any other fit.

    Attributes:
        previous: a fitted model of the same kind, with arrays as wide (WIDTHS).
        users, items: int (users,) and (items,): for each row and column of the matrix, its place in the matrix
            of `previous`, or -1 if it is new.
    """

    previous: Any
    users: np.ndarray
    items: np.ndarray


WIDTH_SETTINGS = (
    "factors",
    "hidden",
    "latent",
)  # settings that give a fit's arrays their widths, in the models that have them
WARM_START_SKIP = 0.75  # share of a schedule of passes


def copy_rows(own: np.ndarray, earlier: np.ndarray, indices: np.ndarray) -> None:
    """Copy rows of an earlier fit's array into `own`; `places` as in `Start`, where -1 keeps the own row."""
    known = indices >= 0
    own[known] = earlier[indices[known]]


def skipped_epochs(passes: int, start: Start | None) -> int:
    """How many of a schedule's passes a fit leaves out at its beginning; all but the last quarter where it has a start."""
    return int(WARM_START_SKIP * passes) if start else 0


def sampling_seed(seed: int, interactions: csr_matrix, start: Start | None) -> int:
    """The seed of what is drawn in every pass: another one each night where a fit begins at the last night's.

    With the same negatives night after night, a chain of fits would learn these by heart.
    """
    return seed + interactions.nnz if start else seed


@dataclass(frozen=True, eq=False)
class ValidationUsers:
    """Users who are not in training; the best epoch is chosen by how well it ranks for them.

    Attributes:
        histories: (users, items) CSR, the edges that the model is shown.
        targets: (users, items) CSR, the edges that it has to find; disjoint from the histories.
    """

    histories: csr_matrix
    targets: csr_matrix


RowLoader = Callable[
    [int, int], csr_matrix
]  # rows [first, end) of the training matrix, on any worker; it can be pickled


@dataclass(frozen=True, eq=False)
class InMemoryRows:
    """The rows of one block, which travel with every call: for a fit in one process, where nothing travels.

    Attributes:
        first: the number of the first of them in the training matrix.
        matrix: the rows.
    """

    first: int
    matrix: csr_matrix

    def __call__(self, first: int, end: int) -> csr_matrix:
        """Rows [first, end) of the training matrix."""
        return self.matrix[first - self.first : end - self.first]


class ScratchStore(Protocol):
    """Scratch storage for the state of blocks between their calls, seen by all workers; it can be pickled."""

    def read(self, name: str) -> dict[str, np.ndarray]:
        """What was written under that name.

        Raises:
            FileNotFoundError: nothing was, or it is gone.
        """
        ...

    def write(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep arrays under a name, whole or not at all, in place of what was there."""

    def remove(self, name: str) -> None:
        """Forget a name, if it is there."""


ScratchFactory = Callable[
    [str], AbstractContextManager[ScratchStore]
]  # a new shelf for a fit of the model of that name


class BlockExecutor(Protocol):
    """Where the blocks of one fit are computed; a call may be made again where its process died."""

    def map(self, function: Callable[..., Any], calls: Sequence[tuple]) -> list:
        """`function(*call)` of every call, in the order of the calls.

        `function` is a module's own, and the arguments and results can be pickled. What a call leaves in `scratch` is
        there when a later one begins, in whatever process.
        """
        ...


class SerialExecutor:
    """Blocks are computed in this process, one after another."""

    def map(self, function: Callable[..., Any], calls: Sequence[tuple]) -> list:
        """As in `BlockExecutor`."""
        return [function(*call) for call in calls]


SERIAL = SerialExecutor()


def _ignore_epoch(epoch: Epoch) -> None:
    """The default of `on_epoch`."""


def _raise_no_component(name: str, settings: ModelSettings) -> None:
    """The default of `member`."""


@dataclass(frozen=True, eq=False)
class FitOptions:
    """The options of one fit; the model does not keep them.

    Attributes:
        start: an earlier fit to begin at, for a model that is `warm_startable`.
        validation: a model that `stops_early` keeps the epoch of the best nDCG@100 on these users; others ignore them.
        negatives: (users, items) CSR, what training users considered and did not like, for a model whose settings say that
            it `reads_negatives`; None where none were observed.
        checkpoints: the folder of the checkpoints from which an interrupted fit goes on; None to keep none. Only some
            models keep checkpoints.
        on_epoch: called after every pass.
        member: asked by a model that is made of others: for a model's name and settings, a fit of it on the same edges
            that is at hand, or None.
        workers: where the blocks are computed, for a model with a setting `blocks`; others ignore this and what follows.
        rows: how a worker gets its rows of the matrix; None: they travel with each call.
        scratch: where the users of a block lie between its calls: shelves, or a folder that all workers see. The fit makes
            a folder of its own in it, and removes that at its end; None: among the temporary folders of this machine.
    """

    start: Start | None = None
    validation: ValidationUsers | None = None
    negatives: csr_matrix | None = None
    checkpoints: Path | None = None
    on_epoch: Callable[[Epoch], None] = _ignore_epoch
    member: Callable[[str, ModelSettings], Any] = _raise_no_component
    workers: BlockExecutor = SERIAL
    rows: RowLoader | None = None
    scratch: Path | ScratchFactory | None = None


DEFAULT_OPTIONS = FitOptions()


def has_converged(before: float, now: float, tolerance: float) -> bool:
    """Whether an objective has moved by less than this share of itself since the last look; never with tolerance 0."""
    return abs(now - before) < tolerance * abs(before)
