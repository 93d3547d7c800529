"""The drift along lines against its definition in plain Python, its null distribution, and held-out edges."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.evaluation.holdout import PURPOSE, choose_held_out_edges, split_matrix
from oneclass.models.evaluation.temporal_drift import MIN_HISTORY, measure_drift
from oneclass.models.numerics.random_numbers import bits, stream


def of_lines(lines, items):
    """(matrix with sorted rows, the places of its entries)."""
    starts = np.cumsum([0] + [len(line) for line in lines])
    places = np.concatenate([np.arange(len(line)) for line in lines])
    matrix = csr_matrix((places + 1.0, np.concatenate(lines), starts), shape=(len(lines), items))
    matrix.sort_indices()
    return matrix, matrix.data


def draw_edges(seed, users=200, items=80):
    generator = np.random.default_rng(seed)
    share = 1 / np.arange(1, items + 1)
    lengths = generator.integers(1, 40, size=users)
    liked = [generator.choice(items, size=length, replace=False, p=share / share.sum()) for length in lengths]
    return [generator.permutation(line) for line in liked]  # for `choice` has the popular ones first


def test_it_is_the_mean_difference_of_cosines_in_its_standard_errors():
    lines = draw_edges(1)
    pattern = (of_lines(lines, 80)[0].toarray() > 0).astype(float)
    columns = pattern / np.maximum(1, np.linalg.norm(pattern, axis=0))
    cosine = columns.T @ columns
    found = []
    for line in lines:
        if len(line) < MIN_HISTORY:
            continue
        last = len(line) // 10
        half = (len(line) - last) // 2
        rest, end = line[:-last], line[-last:]
        found.append(cosine[np.ix_(end, rest[-half:])].mean() - cosine[np.ix_(end, rest[:half])].mean())
    z, users = measure_drift(*of_lines(lines, 80))
    assert users == len(found) > 100
    assert z == pytest.approx(np.mean(found) / (np.std(found, ddof=1) / np.sqrt(len(found))))


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
