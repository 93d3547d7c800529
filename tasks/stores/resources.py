"""Cores and memory available to this process, within the limits of a container and of `ulimit`; and its peak memory.

Errors of exhausted memory or disk say what to do.
"""

import contextlib
import errno
import os
import re
import resource
import sys
import traceback
from collections.abc import Generator, Iterator
from pathlib import Path

import numpy as np

from oneclass.tasks.errors import OneclassError, ResourceExhausted

CGROUP, CGROUP_MOUNT, PROC = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"), Path("/proc")
# The limits of `ulimit -v` and `-d`, and the usage that counts against each.
PROCESS_LIMITS = {resource.RLIMIT_AS: "VmSize", resource.RLIMIT_DATA: "VmData"}
CACHE_ENTRIES = ("active", "inactive")
RESERVED_BYTES = 64 << 20
KERNEL_BYTES = 56 * 10**6  # memory of loaded and compiled code that a first fit takes beside its arrays
DISK_FULL_MESSAGES = re.compile(
    r"No space left on device|Disk quota exceeded|Not enough free space|\d+ requested and \d+ written"
)
MODEL_MEMORY_HINT = "Give the run more memory, or leave the model out (--models); what the other models made is kept."


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_limit() -> int:
    """Return the bytes of memory that this process may use: the machine's, or a lower limit."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *(limit for limit, _ in [*_read_group_limits(), *_read_process_limits()])])


def free_memory() -> int:
    """Return the bytes of memory that this process could still allocate; swap counts as free.

    The file cache of the machine or of a control group counts as free too, since the kernel evicts it on demand.
    """
    free = [limit - used for limit, used in [*_read_group_limits(), *_read_process_limits()]]
    machine = _read_sizes(PROC / "meminfo")
    if "MemAvailable" in machine:
        free.append(1024 * (machine["MemAvailable"] + machine.get("SwapFree", 0)))
    return max(0, min([memory_limit(), *free]))


def describe_free_memory() -> str:
    """Describe how much of the available memory is free."""
    free, limit = (format_size(count) for count in (free_memory(), memory_limit()))
    return f"{free} are free of the {limit} that this process may have"


def format_size(count: int) -> str:
    """Format a number of bytes in MB or GB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _read_group_limits() -> Iterator[tuple[int, int]]:
    """Yield each memory limit of the control group and its parents, and the usage without file cache, in bytes.

    CGROUP has lines such as `0::/path` (version 2) or `5:memory:/path` (version 1).
    """
    try:
        lines = CGROUP.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root = CGROUP_MOUNT / "memory" if controllers else CGROUP_MOUNT
        limits, usage = ("limit_in_bytes", "usage_in_bytes") if controllers else ("max", "current")
        group = root / path.strip("/")
        for folder in [group, *group.parents]:
            limit = _read_number(folder / f"memory.{limits}") if folder.is_relative_to(root) else None
            if limit is not None:
                cached = _read_sizes(folder / "memory.stat")
                files = sum(cached.get(f"{'total_' if controllers else ''}{name}_file", 0) for name in CACHE_ENTRIES)
                yield limit, max(0, (_read_number(folder / f"memory.{usage}") or 0) - files)


def _read_process_limits() -> Iterator[tuple[int, int]]:
    """Yield each limit of this process and its usage, in bytes."""
    usage = _read_sizes(PROC / "self" / "status")
    for limit, counted in PROCESS_LIMITS.items():
        soft, _ = resource.getrlimit(limit)
        if soft != resource.RLIM_INFINITY:
            yield soft, 1024 * usage.get(counted, 0)


def _read_number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # absent, or `max`
        return None


def _read_sizes(file: Path) -> dict[str, int]:
    """Read the numbers of a kernel file with a name and a number per line; empty if it is absent."""
    try:
        words = [line.replace(":", " ").split() for line in file.read_text().splitlines()]
    except OSError:
        return {}
    return {fields[0]: int(fields[1]) for fields in words if len(fields) > 1 and fields[1].isdigit()}


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
    needs = f"{what}: " + (f"needs about {format_size(needed)} of memory, and " if needed else "")
    if needed > free_memory():
        raise OneclassError(f"{needs}{describe_free_memory()}. {MODEL_MEMORY_HINT}")
    try:
        yield
    except MemoryError as error:
        raise OneclassError(f"{needs}{_describe_failure(error)}. {MODEL_MEMORY_HINT}") from error


def _describe_failure(error: MemoryError) -> str:
    """Say what could not be allocated and what is free; the arrays in the error's frames would live as long as it."""
    traceback.clear_frames(error.__traceback__)
    return f"ran out of memory ({str(error) or 'MemoryError'}): {describe_free_memory()}"


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
