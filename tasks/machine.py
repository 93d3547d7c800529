"""What the machine under a run says of itself: the peak of memory, and a BLAS that is held back."""

import functools
import logging
import os
import resource
import sys
from pathlib import Path

from threadpoolctl import threadpool_info

logger = logging.getLogger(__name__)


def reset_peak_memory() -> None:
    """Start the process's peak of resident memory afresh, where the kernel lets it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        logger.debug("the peak of memory cannot be reset here; it is the whole run's")


def peak_memory() -> int:
    """Bytes of resident memory at most since the last reset, or since the process began."""
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(status.read_text().split("VmHWM:")[1].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@functools.cache
def warn_of_pinned_blas() -> None:
    """Say once that BLAS is held below what the processor can do; a user's setting is left as it is."""
    pinned = os.environ.get("OPENBLAS_CORETYPE")
    processor = Path("/proc/cpuinfo")
    if pinned and processor.exists() and "avx512f" in processor.read_text():
        kernels = {library.get("architecture") for library in threadpool_info()}
        logger.info("OPENBLAS_CORETYPE=%s holds BLAS to %s kernels; this processor has AVX-512", pinned, kernels)
