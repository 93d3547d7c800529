"""A kernel runs the same machine code when it was just compiled as when it was read from numba's cache.

numba compiles the body of a parallel loop, and every helper that is not inlined, twice: once by itself, and once more,
optimized again, within the kernel that calls it. Both copies have one name. The process that compiles runs the first,
and keeps the second for those to come; where an optimization may fuse or reorder floating-point operations, the two
differ in their last bits. So the copy within a kernel is made the kernel's own, and is what runs from the start.
"""

from llvmlite.binding import Linkage
from numba.core.codegen import CPUCodeLibrary


def install() -> None:
    """Have every kernel that is compiled from now on call its own copies of what it is made of."""
    finalize = CPUCodeLibrary._finalize_final_module
    if finalize.__name__ == _finalize_with_own_copies.__name__:
        return
    _finalize_with_own_copies.original = finalize
    CPUCodeLibrary._finalize_final_module = _finalize_with_own_copies


def _finalize_with_own_copies(library: CPUCodeLibrary) -> None:
    """numba's own counting of references (NRT_...) stays shared: it is known by name when pairs of counts are removed."""
    linked = {
        function.name
        for other in library._linking_libraries
        for function in other._get_module_for_linking().functions
        if not function.is_declaration and not function.name.startswith("NRT_")
    }
    for function in library._final_module.functions:
        if function.name in linked and not function.is_declaration:
            function.linkage = Linkage.internal
    _finalize_with_own_copies.original(library)
