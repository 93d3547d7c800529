"""Recency ranks of some of a user's entries, from those of all."""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def select_ranks(starts, items, ranks, rows, selected_starts, selected_columns, item_of_column, count):
    """Rank some entries of each row among themselves by the ranks of all its entries.

    Args:
        starts, items, ranks: of all rows: the first entry of each, the items of the entries, and their ranks, which are
            0, 1, ... in each row.
        rows: int (selected rows,), the row among all of each.
        selected_starts, selected_columns: of the selected rows, the first entry of each and the columns of the entries;
            each is an entry of the row among all.
        item_of_column: int (columns,).
        count: number of items.

    Returns:
        int32 (selected entries,), in each row 0, 1, ... in the order of `ranks`.
    """
    found = np.empty(len(selected_columns), dtype=np.int32)
    rank_of_item = np.empty(count, dtype=np.int32)  # in the row, for its items
    for row in range(len(rows)):
        begin, end = starts[rows[row]], starts[rows[row] + 1]
        for entry in range(begin, end):
            rank_of_item[items[entry]] = ranks[entry]
        lower = np.zeros(end - begin + 1, dtype=np.int32)  # for each rank among all, the number of selected lower ones
        for entry in range(selected_starts[row], selected_starts[row + 1]):
            found[entry] = rank_of_item[item_of_column[selected_columns[entry]]]
            lower[found[entry] + 1] = 1
        for rank in range(1, len(lower)):
            lower[rank] += lower[rank - 1]
        for entry in range(selected_starts[row], selected_starts[row + 1]):
            found[entry] = lower[found[entry]]
    return found
