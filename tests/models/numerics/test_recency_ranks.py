"""Recency ranks of some entries of each row, against sorting them."""

import numpy as np
import pytest

from oneclass.models.numerics.recency_ranks import select_ranks


@pytest.mark.parametrize("seed", range(5))
def test_selected_entries_are_ranked_as_if_sorted_anew(seed):
    generator = np.random.default_rng(seed)
    count, lengths = 30, generator.integers(0, 25, 12)
    all_items = [generator.permutation(count)[:length] for length in lengths]
    all_ranks = [generator.permutation(length) for length in lengths]
    item_of_column = generator.permutation(count)
    column_of_item = np.argsort(item_of_column)
    rows = np.sort(generator.permutation(len(lengths))[:9])
    selected = [generator.permutation(lengths[row])[: generator.integers(0, lengths[row] + 1)] for row in rows]
    expected = [np.argsort(np.argsort(all_ranks[row][entries])) for row, entries in zip(rows, selected, strict=True)]
    found = select_ranks(
        np.concatenate([[0], np.cumsum(lengths)]),
        np.concatenate(all_items).astype(np.int32),
        np.concatenate(all_ranks).astype(np.int32),
        rows,
        np.concatenate([[0], np.cumsum([len(entries) for entries in selected])]),
        np.concatenate([column_of_item[all_items[row][entries]] for row, entries in zip(rows, selected, strict=True)]),
        item_of_column,
        count,
    )
    assert found.dtype == np.int32 and found.tolist() == np.concatenate(expected).tolist()
