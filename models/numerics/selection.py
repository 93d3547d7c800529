"""The largest and the smallest numbers of an array, for kernels.

numba's own partition and sort take seconds to compile, and are slower.
"""

import numpy as np
from numba import njit


@njit(cache=True)
def largest(values, rank):
    """The value of a rank; rank 1 is the largest. Reorders `values` so that the first `rank` are the largest.

    Hoare's quickselect.
    """
    low, high, place = 0, len(values) - 1, rank - 1
    while low < high:
        pivot = values[(low + high) // 2]
        left, right = low, high
        while left <= right:
            while values[left] > pivot:
                left += 1
            while values[right] < pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if place <= right:
            high = right
        elif place >= left:
            low = left
        else:
            break
    return values[place]


@njit(cache=True)
def smallest(keys, count):
    """Positions of the `count` smallest keys, int64 (count,), ascending; of equal keys the first are taken."""
    positions = np.empty(count, dtype=np.int64)
    if count == 0:
        return positions
    bound = -largest(-keys, count)
    equal = count  # how many keys that equal the bound are still to be taken
    for key in keys:
        equal -= key < bound
    at = 0
    for position in range(len(keys)):
        if keys[position] < bound or (keys[position] == bound and equal > 0):
            equal -= keys[position] == bound
            positions[at] = position
            at += 1
    return positions


@njit(cache=True)
def smallest_first(keys, order, count, wanted):
    """Move the `wanted` smallest of keys[:count] to the front; `order` is reordered like `keys`.

    The search is that of `largest`, which does not reorder a second array because that costs a fifth to a quarter more.
    """
    low, high = 0, count - 1
    while low < high and wanted < count:
        pivot = keys[(low + high) // 2]
        left, right = low, high
        while left <= right:
            while keys[left] < pivot:
                left += 1
            while keys[right] > pivot:
                right -= 1
            if left <= right:
                keys[left], keys[right] = keys[right], keys[left]
                order[left], order[right] = order[right], order[left]
                left += 1
                right -= 1
        if wanted - 1 <= right:
            high = right
        elif wanted - 1 >= left:
            low = left
        else:
            return
