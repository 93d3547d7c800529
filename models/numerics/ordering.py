"""Search in ascending arrays, and the order of short ones, for kernels.

numba's own searches and sorts serve all kinds of arguments, and take seconds to compile.
"""

import numpy as np
from numba import njit

RUN = 16


@njit(cache=True, nogil=True)
def first_above(ascending, value):
    """The first place of an ascending array whose number exceeds `value`; the array's length if there is none."""
    low, high = np.int64(0), np.int64(len(ascending))
    while low < high:
        middle = (low + high) // 2
        if ascending[middle] > value:
            high = middle
        else:
            low = middle + 1
    return low


@njit(cache=True, nogil=True)
def contains(ascending, value):
    """Whether the value is in an ascending array."""
    place = first_above(ascending, value) - 1
    return place >= 0 and ascending[place] == value


@njit(cache=True, nogil=True)
def ascending_order(keys):
    """Positions of the keys from the smallest to the largest, int64; equal keys keep their order. No key may be NaN.

    Runs of RUN keys are sorted by insertion, then merged in pairs until a single run is left.
    """
    count = len(keys)
    order, merged = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    for key in range(count):
        place = key
        while place % RUN > 0 and keys[order[place - 1]] > keys[key]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = key
    run = RUN
    while run < count:
        for start in range(0, count, 2 * run):
            middle, end = min(start + run, count), min(start + 2 * run, count)
            left, right = start, middle
            for at in range(start, end):
                if right == end or (left < middle and keys[order[left]] <= keys[order[right]]):
                    merged[at] = order[left]
                    left += 1
                else:
                    merged[at] = order[right]
                    right += 1
        order, merged = merged, order
        run *= 2
    return order
