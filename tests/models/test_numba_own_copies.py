"""A kernel calls its own copies of what it is made of, so that compiled and cached machine code are one."""

import numpy as np
from llvmlite.binding import Linkage
from numba import njit, prange

from oneclass import models  # noqa: F401  (sets numba up)


@njit(fastmath={"reassoc", "contract"})
def dot(left, right):
    total = np.float32(0)
    for place in range(len(left)):
        total += left[place] * right[place]
    return total


@njit(parallel=True)
def dots(left, right, out):
    for row in prange(len(out)):
        out[row] = dot(left[row], right[row])


def test_a_kernel_shares_no_machine_code_with_what_was_compiled_before_it():
    left, right = np.ones((4, 9), np.float32), np.full((4, 9), 2, np.float32)
    out = np.empty(4, np.float32)
    dots(left, right, out)
    assert (out == 18).all()
    (made,) = dots.overloads.values()
    parts = [one for one in made.library._final_module.functions if "gufunc" in one.name]
    assert parts, "numba no longer puts the body of a loop into its kernel: is models/numba_cache.py still needed?"
    assert [one.linkage for one in parts if not one.is_declaration] == [Linkage.internal] * len(parts)
