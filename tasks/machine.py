"""Facts about the machine that a run is on: the peak of memory, and whether BLAS is kept from the fastest kernels."""

import functools
import logging
import os
import resource
import sys
from pathlib import Path

from threadpoolctl import threadpool_info

logger = logging.getLogger(__name__)


def reset_peak_memory() -> None:
    """Reset the peak of the process's resident memory, if the kernel allows it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        logger.debug("the peak of memory cannot be reset here; it is the whole run's")


def peak_memory() -> int:
    """The peak of resident memory, in bytes, since the last reset or since the process began."""
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(status.read_text().split("VmHWM:")[1].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@functools.cache
def warn_of_pinned_blas() -> None:
    """Log, once, that a setting keeps BLAS from the fastest kernels of the processor; the setting is not changed."""
    pinned = os.environ.get("OPENBLAS_CORETYPE")
    processor = Path("/proc/cpuinfo")
    if pinned and processor.exists() and "avx512f" in processor.read_text():
        kernels = {library.get("architecture") for library in threadpool_info()}
        logger.info("OPENBLAS_CORETYPE=%s holds BLAS to %s kernels; this processor has AVX-512", pinned, kernels)
