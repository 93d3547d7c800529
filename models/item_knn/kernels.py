"""The most similar items of each item, from one row of the Gram matrix at a time."""

import numpy as np
from numba import njit, prange

from oneclass.models.numerics.top_k import sift_down, sift_up


@njit(parallel=True, nogil=True, cache=True)
def find_nearest(gram, first, of_neighbour, of_item, shrinkage, is_jaccard, workers, counts, ids, values):
    """Find the nearest neighbours of the items from `first` on, at most as many as `ids` has columns.

    The similarity of a neighbour i to an item j is g_ij / (of_neighbour_i of_item_j + shrinkage), or with `is_jaccard`
    g_ij / (of_neighbour_i + of_item_j - g_ij + shrinkage), g being the Gram matrix. Worker w takes every `workers`-th
    item.

    Args:
        gram: the `GramRows`; its shift and factor are not read.
        of_neighbour, of_item: float64 (items,).
        counts, ids, values: int64 (n,), int32 and float32 (n, k), filled here with the neighbours of n items by
            ascending id. Only positive similarities count, and of equal ones the lower id.
    """
    for worker in prange(workers):
        total = np.zeros(len(of_item))
        touched = np.empty(len(of_item), dtype=np.int32)
        for place in range(worker, len(counts), workers):
            item = first + place
            shared = np.int64(0)  # with a bare 0, numba would compile the heap's functions for a second type
            for at in range(gram.item_indptr[item], gram.item_indptr[item + 1]):
                user = gram.item_users[at]
                weight = gram.weights[user]
                for entry in range(gram.indptr[user], gram.indptr[user + 1]):
                    other = gram.indices[entry]
                    if total[other] == 0.0 and weight != 0.0:
                        touched[shared] = other
                        shared += 1
                    total[other] += weight
            size = np.int64(0)
            heap, best = ids[place], values[place]
            for at in range(shared):
                other = touched[at]
                weight = total[other]
                total[other] = 0.0
                if other == item or len(heap) == 0:
                    continue
                if is_jaccard:
                    divisor = of_neighbour[other] + of_item[item] - weight + shrinkage
                else:
                    divisor = of_neighbour[other] * of_item[item] + shrinkage
                similarity = np.float32(weight / divisor)
                if not similarity > 0:
                    continue
                if size < len(heap):
                    sift_up(heap, best, size, other, similarity)
                    size += 1
                elif similarity > best[0] or (similarity == best[0] and other < heap[0]):
                    sift_down(heap, best, size, other, similarity)
            counts[place] = size
            order = np.argsort(heap[:size])
            heap[:size] = heap[:size][order]
            best[:size] = best[:size][order]
