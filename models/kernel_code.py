"""A kernel runs the same machine code whether it was just compiled or read from numba's cache.

numba compiles the body of a parallel loop, and every helper that is not inlined, twice: once by itself, and once more
within the kernel that calls it, where it is optimized again. Both copies have the same name. The process that compiles
them runs the first copy and saves the second for later processes. Where the optimizer may fuse or reorder
floating-point operations, the two copies differ in their last bits. So the second copy is made private to its kernel,
and is the one that runs from the start.
"""

from llvmlite.binding import Linkage
from numba.core.codegen import CPUCodeLibrary


def install() -> None:
    """Make every kernel that is compiled from now on call its own copies of its helpers."""
    finalize = CPUCodeLibrary._finalize_final_module
    if finalize.__name__ == _finalize_with_own_copies.__name__:
        return
    _finalize_with_own_copies.original = finalize
    CPUCodeLibrary._finalize_final_module = _finalize_with_own_copies


def _finalize_with_own_copies(library: CPUCodeLibrary) -> None:
    """Make linked functions private; but numba's reference counting (NRT_...), which it finds by name, stays shared."""
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
