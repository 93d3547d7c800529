"""Store the matrices of splits in the background."""

import logging
from concurrent.futures import Executor
from dataclasses import replace
from datetime import date

import duckdb

from oneclass.tasks.binarize.weights import LikeSelection
from oneclass.tasks.errors import InputError
from oneclass.tasks.protocols import is_fold
from oneclass.tasks.split.features import Features
from oneclass.tasks.split.matrix import add_event_ages
from oneclass.tasks.split.order import EdgeOrder
from oneclass.tasks.stores import matrices
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import SplitMatrices
from oneclass.tasks.stores.warehouse import select

logger = logging.getLogger(__name__)


class MatrixWriter:
    """Store matrices one after the other while the next are computed.

    Args:
        order: whether to keep the order of likes with them.
        timed: by which `binarize` selected likes, to keep the ages of their events; None to keep none.
    """

    def __init__(
        self,
        home: Home,
        connection: duckdb.DuckDBPyConnection,
        writer: Executor,
        *,
        order: bool,
        timed: LikeSelection | None,
    ) -> None:
        self._home, self._connection, self._timed = home, connection, timed
        self._order = EdgeOrder(connection) if order else None
        self._writer, self._written = writer, {}
        sizes = select(connection, "split/sizes").row(0, named=True)
        self._numbering = {**sizes, "digest": select(connection, "split/numbering", **sizes).item()}
        self._features = Features.load(connection)

    def store(self, split: SplitMatrices, before: date | None = None) -> None:
        """Store a split, with recency ranks and event ages if they are kept; its relations must still exist.

        A split without training edges is skipped with a warning: a small log may lack a training user by chance.

        Args:
            before: the first day that is not trained on, if the split is by time.
        """
        if split.train.nnz == 0:
            logger.warning(
                "%s: left out, because no edge is left to train on; the log is too small for this protocol, or the "
                "filters split.min_user_edges and split.min_item_edges are too strict",
                split.protocol,
            )
        else:
            split = self._order.add_to(split) if self._order else split
            split = add_event_ages(self._connection, split, self._timed, before) if self._timed else split
            split = self._features.add(split)
            if is_fold(split.protocol):
                split = replace(split, parts={**split.parts, "validation": split.parts["test"]})
            numbered = replace(split, numbering=self._numbering)
            self._written[split.protocol] = self._writer.submit(matrices.store_split, self._home, numbered)

    def require_item_features(self) -> None:
        """Refuse cold_items without attributes.

        Raises:
            InputError: the data set has no attributes of items that count as features.
        """
        if self._features.items is None:
            raise InputError(
                "protocol cold_items: needs attributes of items, and the warehouse has none. Name the table and the "
                "columns that count under [items] in the data set's TOML, or leave cold_items out of --protocols."
            )

    def digests(self) -> dict[str, str]:
        """Return the digests of the stored splits by protocol, waiting for the writes.

        Raises:
            OSError: a split cannot be written.
        """
        return {protocol: writing.result() for protocol, writing in self._written.items()}
