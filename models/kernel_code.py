"""A kernel runs the same machine code whether it was just compiled or read from numba's cache.

numba compiles the body of a parallel loop, and every helper that is not inlined, twice: once by itself, and once more
within the kernel that calls it, where it is optimized again. Both copies have the same name. The process that compiles
them runs the first copy and saves the second for later processes. Where the optimizer may fuse or reorder
floating-point operations, the two copies differ in their last bits. So the second copy is made private to its kernel,
and is the one that runs from the start.

numba also wraps the body of a parallel loop twice before it becomes part of its kernel. Nobody calls these wrappers
themselves, so they are neither optimized nor turned into machine code. That saves a seventh of the time to compile.
"""

from llvmlite.binding import Linkage
from numba.core.codegen import CPUCodeLibrary, JITCodeLibrary

_optimize, _make_code = CPUCodeLibrary._optimize_final_module, CPUCodeLibrary._finalize_final_module
_get_pointer = JITCodeLibrary.get_pointer_to_function


def install() -> None:
    """Make every kernel that is compiled from now on call its own copies of its helpers."""
    CPUCodeLibrary._optimize_final_module = _wait
    CPUCodeLibrary._finalize_final_module = _wait_for_a_caller
    JITCodeLibrary.get_pointer_to_function = _get_pointer_to_own_copies


def _wait(library: CPUCodeLibrary) -> None:
    """Optimize later, if at all."""


def _wait_for_a_caller(library: CPUCodeLibrary) -> None:
    library._finalized = library._waits = True


def _get_pointer_to_own_copies(library: JITCodeLibrary, name: str) -> int:
    """The address of a function, of which machine code is made when the first address in its library is asked for."""
    library._ensure_finalized()
    if getattr(library, "_waits", False):
        library._waits = False
        _optimize(library)
        _make_private(library)
        _make_code(library)
    return _get_pointer(library, name)


def _make_private(library: CPUCodeLibrary) -> None:
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
