"""Which edges are held out: against the definition in plain Python, and what the choice must not depend on."""

import numpy as np

from oneclass.models.evaluation.holdout import PURPOSE, choose_held_out_edges, split_matrix
from oneclass.models.numerics.random_numbers import bits, stream


def chosen_pairs(matrix, counts, seed, users, items):
    kept, held_out = split_matrix(matrix, choose_held_out_edges(matrix, counts, seed, users, items))
    assert kept.has_sorted_indices and held_out.has_sorted_indices
    np.testing.assert_array_equal((kept + held_out).toarray(), matrix.toarray())
    assert kept.multiply(held_out).nnz == 0
    rows, columns = held_out.nonzero()
    return set(zip(users[rows].tolist(), items[columns].tolist(), strict=True))


def test_the_edges_of_the_lowest_hashes_are_held_out(long_tailed):
    users, items = np.arange(300) * 3 + 1, np.arange(120) + 50
    counts = np.diff(long_tailed.indptr) // 5
    expected = set()
    for row, user in enumerate(users):
        key = stream(4, PURPOSE, 0, user)
        own = sorted(items[long_tailed[row].indices], key=lambda item: bits(np.uint64(key), item))
        expected |= {(user, item) for item in own[: counts[row]]}
    assert chosen_pairs(long_tailed, counts, 4, users, items) == expected


def test_the_choice_depends_on_the_seed_and_on_no_other_user(long_tailed):
    users, items, counts = np.arange(300), np.arange(120), np.minimum(np.diff(long_tailed.indptr), 2)
    whole = chosen_pairs(long_tailed, counts, 0, users, items)
    turned = chosen_pairs(long_tailed[::-1].sorted_indices(), counts[::-1], 0, users[::-1], items)
    few = chosen_pairs(long_tailed[:40], counts[:40], 0, users[:40], items)
    assert turned == whole and few == {pair for pair in whole if pair[0] < 40}
    assert chosen_pairs(long_tailed, counts, 1, users, items) != whole
