"""Cores and memory available to this process, within the limits of a container and of `ulimit`."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

CGROUP, CGROUP_MOUNT, PROC = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"), Path("/proc")
# The limits of `ulimit -v` and `-d`, and the usage that counts against each.
PROCESS_LIMITS = {resource.RLIMIT_AS: "VmSize", resource.RLIMIT_DATA: "VmData"}
CACHE_ENTRIES = ("active", "inactive")


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
