"""What this process may take of the machine: cores, and memory, the limits of a container and of `ulimit` included."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

CGROUP, CGROUP_MOUNT, PROC = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"), Path("/proc")
PROCESS_LIMITS = {
    resource.RLIMIT_AS: "VmSize",
    resource.RLIMIT_DATA: "VmData",
}  # `ulimit -v`, `-d`: what counts for each
CACHE_ENTRIES = ("active", "inactive")
SIZE_UNITS = {"MB": 10**6, "GB": 10**9, "TB": 10**12, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_limit() -> int:
    """Bytes of memory that this process may use: those of the machine, or fewer where it was given fewer."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *read_cgroup_limits(CGROUP, CGROUP_MOUNT), *(limit for limit, _ in _read_process_limits())])


def free_memory() -> int:
    """Bytes of memory that this process could take now, beside what it and others have; swap counts as free.

    What files have in the machine's cache, or in that of a control group, is free too: it is given back when asked for.
    """
    free = [limit - used for limit, used in (*_read_group_limits(CGROUP, CGROUP_MOUNT), *_read_process_limits())]
    machine = _read_sizes(PROC / "meminfo")
    if "MemAvailable" in machine:
        free.append(1024 * (machine["MemAvailable"] + machine.get("SwapFree", 0)))
    return max(0, min([memory_limit(), *free]))


def describe_free_memory() -> str:
    """How much memory is free, of how much."""
    free, there = (format_size(count) for count in (free_memory(), memory_limit()))
    return f"{free} are free of the {there} that this process may have"


def format_size(count: int) -> str:
    """A number of bytes in MB or GB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def read_cgroup_limits(cgroup: Path, mounted: Path) -> list[int]:
    """The memory limits of a control group and of those that it lies in, in bytes, of version 1 and 2 alike.

    Args:
        cgroup: the kernel's list of a process's groups, lines such as `0::/path` or `5:memory:/path`.
        mounted: the folder that the groups' files are seen in.
    """
    return [limit for limit, _ in _read_group_limits(cgroup, mounted)]


def _read_group_limits(cgroup: Path, mounted: Path) -> Iterator[tuple[int, int]]:
    """Each limit of `read_cgroup_limits`, and what its group has, without what files have in the cache."""
    try:
        lines = cgroup.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root = mounted / "memory" if controllers else mounted
        limits, usage = ("limit_in_bytes", "usage_in_bytes") if controllers else ("max", "current")
        group = root / path.strip("/")
        for folder in [group, *group.parents]:
            limit = _read_number(folder / f"memory.{limits}") if folder.is_relative_to(root) else None
            if limit is not None:
                cached = _read_sizes(folder / "memory.stat")
                files = sum(cached.get(f"{'total_' if controllers else ''}{name}_file", 0) for name in CACHE_ENTRIES)
                yield limit, max(0, (_read_number(folder / f"memory.{usage}") or 0) - files)


def _read_process_limits() -> Iterator[tuple[int, int]]:
    """Each limit of this process's own, and what it has of that, in bytes."""
    has = _read_sizes(PROC / "self" / "status")
    for limit, counted in PROCESS_LIMITS.items():
        soft, _ = resource.getrlimit(limit)
        if soft != resource.RLIM_INFINITY:
            yield soft, 1024 * has.get(counted, 0)


def parse_size(text: str) -> int | None:
    """`4GB`, `512 MB` or `1.5GiB` as a number of bytes; None where it is written in another way."""
    number = text.strip().upper().rstrip("BIGMT").strip()
    unit = text.strip().upper().removeprefix(number).strip()
    try:
        return int(float(number) * SIZE_UNITS[unit if unit.endswith("B") else f"{unit}B"])
    except (ValueError, OverflowError, KeyError):
        return None


def _read_number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # absent, or `max`
        return None


def _read_sizes(file: Path) -> dict[str, int]:
    """The numbers of a file of the kernel's with a name and a number a line; none where it is absent."""
    try:
        words = [line.replace(":", " ").split() for line in file.read_text().splitlines()]
    except OSError:
        return {}
    return {of_line[0]: int(of_line[1]) for of_line in words if len(of_line) > 1 and of_line[1].isdigit()}
