"""Memory and disk errors with advice, and the peak of memory."""

import contextlib
import errno
import re
import resource
import sys
import traceback
from collections.abc import Generator
from pathlib import Path

import numpy as np

from oneclass.tasks.errors import OneclassError, ResourceExhausted
from oneclass.tasks.stores import resources

RESERVED_BYTES = 64 << 20
KERNEL_BYTES = 56 * 10**6  # memory of loaded and compiled code that a first fit takes beside its arrays
DISK_FULL_MESSAGES = re.compile(
    r"No space left on device|Disk quota exceeded|Not enough free space|\d+ requested and \d+ written"
)
MODEL_MEMORY_HINT = "Give the run more memory, or leave the model out (--models); what the other models made is kept."


@contextlib.contextmanager
def guard_model_memory(what: str, needed: int = 0) -> Generator[None]:
    """Turn a lack of memory into an error of one model; fails at once if it needs more than is free.

    Args:
        what: the stage and the model, for the message.
        needed: estimate of the additional memory in bytes; 0 if unknown.

    Raises:
        OneclassError: it needs more than is free, or a MemoryError occurred; the message has both numbers.
    """
    needed += KERNEL_BYTES if needed else 0
    needs = f"{what}: " + (f"needs about {resources.format_size(needed)} of memory, and " if needed else "")
    if needed > resources.free_memory():
        raise OneclassError(f"{needs}{resources.describe_free_memory()}. {MODEL_MEMORY_HINT}")
    try:
        yield
    except MemoryError as error:
        raise OneclassError(f"{needs}{_describe_failure(error)}. {MODEL_MEMORY_HINT}") from error


def _describe_failure(error: MemoryError) -> str:
    """Say what could not be allocated and what is free; the arrays in the error's frames would live as long as it."""
    traceback.clear_frames(error.__traceback__)
    return f"ran out of memory ({str(error) or 'MemoryError'}): {resources.describe_free_memory()}"


@contextlib.contextmanager
def memory_errors(what: str) -> Generator[None]:
    """Replace errors of exhausted memory or disk by errors with advice.

    Reserve 64 MB, released on error, so that shutdown itself cannot run out of memory: Prefect starts threads at a
    task's end, and would wait for ever for one that Python cannot start.

    Raises:
        ResourceExhausted: memory or disk ran out.
    """
    try:
        reserved = np.empty(RESERVED_BYTES, dtype=np.int8)  # never written to, so that it takes no pages
        try:
            yield
        finally:
            del reserved
    except Exception as error:
        if isinstance(error, OneclassError) or (advice := explain_exhaustion(error, what)) is None:
            raise
        raise ResourceExhausted(advice) from error


def explain_exhaustion(error: Exception, what: str) -> str | None:
    """Return advice on an error of exhausted memory or disk; None for any other error.

    numpy and Polars report a full disk in their own messages, without an errno.
    """
    if isinstance(error, MemoryError):
        problem = f"{what}: {_describe_failure(error)}"
        return f"{problem}. Give it more, or end what else runs on the machine; the same command goes on from here."
    number, file = getattr(error, "errno", None), getattr(error, "filename", None) or what
    if number in (errno.ENOSPC, errno.EDQUOT) or (number is None and DISK_FULL_MESSAGES.search(str(error))):
        reason = getattr(error, "strerror", None) or str(error)
        return f"{file}: the disk is full ({reason}). Free some space or choose another --home, then run again."
    return None


def reset_peak_rss() -> None:
    """Reset the peak of the process's resident memory; where the kernel does not allow it, the peak is the run's."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_rss() -> int:
    """Return the peak of resident memory, in bytes, since the last reset or the start of the process."""
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(status.read_text().split("VmHWM:")[1].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
