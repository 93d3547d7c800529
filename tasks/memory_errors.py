"""Facts about the machine that a run is on: memory that is short, its peak, and whether BLAS has the fastest kernels."""

import contextlib
import errno
import functools
import logging
import os
import re
import resource
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

from oneclass.tasks.errors import OneclassError, ResourceExhausted
from oneclass.tasks.stores import resources

logger = logging.getLogger(__name__)

MIN_REPORTED_BYTES = 10**6  # bytes that a model needs, from which on that is worth saying
RESERVED_BYTES = 64 << 20  # bytes
KERNEL_BYTES = 56 * 10**6  # bytes that a first fit takes beside its arrays, for code that is loaded and compiled
DISK_FULL_MESSAGES = re.compile(
    r"No space left on device|Disk quota exceeded|Not enough free space|\d+ requested and \d+ written"
)
MODEL_MEMORY_HINT = "Give the run more memory, or leave the model out (--models); what the other models made is kept."


@contextlib.contextmanager
def guard_model_memory(what: str, needed: int = 0) -> Iterator[None]:
    """Work on one model, which fails alone where memory is short: at once if it needs more than there is.

    Args:
        what: the model, and the stage that works on it.
        needed: bytes that its arrays take at least, about, beside what the process has; 0 where that is not known.

    Raises:
        OneclassError: it needs more than is free, or has met a MemoryError; the message has both numbers.
    """
    needed += KERNEL_BYTES if needed else 0
    needs = f"needs about {resources.format_size(needed)} of memory, and " if needed >= MIN_REPORTED_BYTES else ""
    if needed and needed > resources.free_memory():
        raise OneclassError(f"{what}: {needs}{resources.describe_free_memory()}. {MODEL_MEMORY_HINT}")
    try:
        yield
    except MemoryError as error:
        _release_frames(error)
        it = f"{what}: {needs}ran out of memory"
        raise OneclassError(
            f"{it} ({_error_text(error)}): {resources.describe_free_memory()}. {MODEL_MEMORY_HINT}"
        ) from error


@contextlib.contextmanager
def memory_errors(what: str) -> Iterator[None]:
    """Say of work that runs out of memory, or of room on the disk, what to do.

    Some memory is held meanwhile that the work cannot take, so that there is room to end: a thread that Python cannot
    start for want of memory, as Prefect does at a task's end, would be waited for without end.

    Raises:
        MachineShort: in the place of the error that it met.
    """
    try:
        spared = np.empty(RESERVED_BYTES, dtype=np.int8)  # never written to, so that it takes no page of the machine's
        try:
            yield
        finally:
            del spared
    except Exception as error:
        if isinstance(error, OneclassError) or (words := explain_exhaustion(error, what)) is None:
            raise
        if isinstance(error, MemoryError):
            _release_frames(error)
        raise ResourceExhausted(words) from error


def explain_exhaustion(error: Exception, what: str) -> str | None:
    """What a person can do about an error of memory or of a disk that ran out; None for any other error.

    numpy and Polars tell of a full disk in messages of their own, without a number.
    """
    if isinstance(error, MemoryError):
        return (
            f"{what}: ran out of memory ({_error_text(error)}): {resources.describe_free_memory()}. Give it more, or end what else runs on the "
            "machine; the same command goes on from here."
        )
    number, file = getattr(error, "errno", None), getattr(error, "filename", None)
    if number in (errno.ENOSPC, errno.EDQUOT) or (number is None and DISK_FULL_MESSAGES.search(str(error))):
        reason = getattr(error, "strerror", None) or str(error)
        return f"{file or what}: the disk is full ({reason}). Free some space or choose another --home, then run again."
    return None


def _release_frames(error: MemoryError) -> None:
    """Drop the arrays that the frames of an error hold, which whoever keeps the error would keep with it."""
    traceback.clear_frames(error.__traceback__)


def _error_text(error: MemoryError) -> str:
    return str(error) or type(error).__name__


def reset_peak_rss() -> None:
    """Reset the peak of the process's resident memory, if the kernel allows it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        logger.debug("the peak of memory cannot be reset here; it is the whole run's")


def peak_rss() -> int:
    """The peak of resident memory, in bytes, since the last reset or since the process began."""
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(status.read_text().split("VmHWM:")[1].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@functools.cache
def warn_pinned_blas() -> None:
    """Log, once, that a setting keeps BLAS from the fastest kernels of the processor; the setting is not changed."""
    pinned = os.environ.get("OPENBLAS_CORETYPE")
    processor = Path("/proc/cpuinfo")
    if pinned and processor.exists() and "avx512f" in processor.read_text():
        kernels = {library.get("architecture") for library in threadpool_info()}
        logger.info("OPENBLAS_CORETYPE=%s holds BLAS to %s kernels; this processor has AVX-512", pinned, kernels)
