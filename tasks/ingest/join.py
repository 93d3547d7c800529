"""Join orders and their lines, which come in files of their own, to events: `[join]` in a data set's file.

Both kinds of files are read into `raw.parts`. The events of a line are written once its order is known, whichever comes
first, under the line's file and number.
"""

import logging
from collections.abc import Sequence

import duckdb

from oneclass import sql
from oneclass.tasks.datasets import Join

logger = logging.getLogger(__name__)


def join_parts(connection: duckdb.DuckDBPyConnection, join: Join, file_ids: Sequence[int], *, every_file: bool) -> None:
    """Write the events of the lines that have an order, and the rejects of repeated orders.

    Args:
        file_ids: of the files that this run loaded; their lines, and older lines of their orders, get events.
        every_file: whether the events of all files are written anew, because orders were deleted.
    """
    selected = {"file_ids": list(file_ids), "every_file": every_file}
    connection.execute(sql.statement("join/files"), selected)
    connection.execute("delete from raw.events where file_id in (from join_files)")
    value = "orders.value" if join.orders.columns.value else "lines.value"
    time = "lines.occurred_at" if join.lines.columns.time else "orders.occurred_at"
    connection.execute(sql.statement("join/events", value=value, time=time))
    # A deleted file may have made a repeated order the first.
    connection.execute("delete from raw.rejects where starts_with(reason, 'repeats the order ')")
    connection.execute(sql.statement("join/repeats"))


def count_rows(connection: duckdb.DuckDBPyConnection) -> None:
    """Update the counts of all joined files in `operations.log_files`, and log which lines wait for their order."""
    connection.execute(sql.statement("join/counts"))
    for part, count, key, path, line_number in connection.execute(sql.statement("join/waiting")).fetchall():
        if part == "lines":
            message = "%s lines wait for their order and count once it is read in, such as %s (%s, line %d)"
            logger.warning(message, f"{count:,}", key, path, line_number)
        else:
            message = "%s orders have no line yet, such as %s (%s, line %d)"
            logger.info(message, f"{count:,}", key, path, line_number)


def reject_unmatched(connection: duckdb.DuckDBPyConnection) -> None:
    """Add the lines without an order, and the orders without a line, to `raw.rejects`, as a preview shows them."""
    connection.execute(sql.statement("join/unmatched"))
