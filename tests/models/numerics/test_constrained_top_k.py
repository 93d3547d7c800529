"""Lists under constraints in catalogues as large as those in which scores are scanned by groups."""

import numpy as np
import pytest

from oneclass.models.numerics.constrained_top_k import Constraints, select_top_items
from oneclass.models.numerics.pooled_top_k import select_from_pools

ITEMS, USERS, N = 2000, 30, 12


def select_naively(scores, excluded, constraints, set_):
    allowed = [item for item in np.flatnonzero(constraints.eligible[set_]) if item not in excluded]
    ordered = sorted((scores[item] for item in allowed), reverse=True)[:N]
    spread = ordered[0] - ordered[-1] if ordered else np.float32(0)
    boosted = {item: scores[item] + constraints.boosts[set_, item] * spread for item in allowed}
    counts = np.zeros(len(constraints.limits), dtype=int)
    chosen = []
    for item in [*constraints.pinned, *sorted(allowed, key=lambda item: (-boosted[item], item))]:
        start, stop = constraints.category_indptr[item : item + 2]
        categories = constraints.category_indices[start:stop]
        is_free = (counts[categories] < constraints.limits[categories]).all()
        if len(chosen) < N and item in boosted and item not in chosen and is_free:
            chosen.append(item)
            counts[categories] += 1
    return chosen, [boosted[item] for item in chosen]


@pytest.mark.parametrize(("limit", "boost"), [(2, 0.5), (50, 0.05), (50, 3), (9, -1)])
def test_lists_are_those_of_a_walk_down_the_ranking(limit, boost):
    generator = np.random.default_rng(0)
    categories = [np.flatnonzero(generator.random(6) < [0.9, 0.2, 0.2, 0.1, 0.05, 0.01]) for _ in range(ITEMS)]
    constraints = Constraints(
        generator.random((2, ITEMS)) < [[0.9], [0.05]],
        (generator.random((2, ITEMS)) < 0.2) * np.float32(boost),
        np.array([7, 1500, 3], dtype=np.int32),
        np.cumsum([0, *map(len, categories)]),
        np.concatenate(categories).astype(np.int32),
        np.array([limit, 3, 3, 3, 4, 4], dtype=np.int32),
    )
    scores = np.round(generator.standard_normal((USERS, ITEMS)), 2).astype(np.float32)
    excluded = [np.sort(generator.choice(ITEMS, 400, replace=False)) for _ in range(USERS)]
    sets = generator.integers(0, 2, USERS)
    indptr = np.cumsum([0, *map(len, excluded)])
    ids, best = select_top_items(scores, indptr, np.concatenate(excluded), sets, constraints, N)
    for user in range(USERS):
        chosen, values = select_naively(scores[user], set(excluded[user]), constraints, sets[user])
        assert ids[user, : len(chosen)].tolist() == chosen and (ids[user, len(chosen) :] == -1).all()
        assert best[user, : len(chosen)].tolist() == values
    pool_size = 150
    allowed = constraints.eligible.any(axis=0)
    pools = np.full((USERS, pool_size), -1, dtype=np.int32)
    values = np.full((USERS, pool_size), -np.inf, dtype=np.float32)
    for user in range(USERS):
        left = np.setdiff1d(np.flatnonzero(allowed), excluded[user])
        pools[user] = left[np.lexsort((left, -scores[user, left]))][:pool_size]
        values[user] = scores[user, pools[user]]
    pinned = scores[:, constraints.pinned]
    of_pools = select_from_pools(pools, values, pinned, indptr, np.concatenate(excluded), sets, constraints, N)
    is_found = of_pools[2]
    assert is_found.any() and (limit < 50 or is_found[sets == 0].all()) and not is_found[sets == 1].any()
    np.testing.assert_array_equal(of_pools[0], np.where(is_found[:, None], ids, -1))
    np.testing.assert_array_equal(of_pools[1], np.where(is_found[:, None], best, -np.inf))
