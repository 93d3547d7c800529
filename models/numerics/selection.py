"""The largest of an array, for kernels: numba's own partition takes seconds to compile, and is slower."""

from numba import njit


@njit(cache=True)
def largest(values, rank):
    """The value that `rank` - 1 others are not below, `rank` from 1; reorders `values` (Hoare's quickselect)."""
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
