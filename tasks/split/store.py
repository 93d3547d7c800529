"""A split's matrices on their way into the matrix store."""

import logging
from concurrent.futures import Executor
from dataclasses import replace

import duckdb

from tasks.split.order import with_order
from tasks.stores import matrices
from tasks.stores.home import Home
from tasks.stores.matrices import SplitMatrices
from tasks.stores.warehouse import select

logger = logging.getLogger(__name__)


class Store:
    """Puts matrices into the store, one after the other, while the next are made."""

    def __init__(self, home: Home, connection: duckdb.DuckDBPyConnection, order: bool, writer: Executor) -> None:
        self._home, self._connection, self._order = home, connection, order
        self._writer, self._written = writer, {}
        sizes = select(connection, "split/sizes").row(0, named=True)
        self._numbering = {**sizes, "digest": select(connection, "split/numbering", **sizes).item()}

    def keep(self, made: SplitMatrices) -> None:
        """Store matrices, with the order of likes where it is kept, whose relations are still there.

        Not where there is nothing to train on: a small log may lack a training user by chance.
        """
        if made.train.nnz == 0:
            logger.warning(
                "%s: left out, because no edge is left to train on; the log is too small for this protocol, or the "
                "filters split.min_user_edges and split.min_item_edges are too strict",
                made.protocol,
            )
        else:
            made = with_order(self._connection, made) if self._order else made
            numbered = replace(made, numbering=self._numbering)
            self._written[made.protocol] = self._writer.submit(matrices.write, self._home, numbered)

    def digests(self) -> dict[str, str]:
        """Of what was stored, by protocol, once it is there.

        Raises:
            OSError: it cannot be written.
        """
        return {protocol: writing.result() for protocol, writing in self._written.items()}
