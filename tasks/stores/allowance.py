"""What this process may take of the machine: cores, and memory, a container's limit included."""

import os
from pathlib import Path

CGROUP, MOUNTED = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
UNITS = {"MB": 10**6, "GB": 10**9, "TB": 10**12, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> int:
    """Bytes of memory that this process may use: those of the machine, or of the container where that has fewer."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *cgroup_limits(CGROUP, MOUNTED)])


def cgroup_limits(cgroup: Path, mounted: Path) -> list[int]:
    """The memory limits of a control group and of those that it lies in, in bytes, of version 1 and 2 alike.

    Args:
        cgroup: the kernel's list of a process's groups, lines such as `0::/path` or `5:memory:/path`.
        mounted: the folder that the groups' files are seen in.
    """
    try:
        lines = cgroup.read_text().splitlines()
    except OSError:
        return []
    limits = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root, name = (mounted / "memory", "memory.limit_in_bytes") if controllers else (mounted, "memory.max")
        group = root / path.strip("/")
        limits += [_limit(folder / name) for folder in [group, *group.parents] if folder.is_relative_to(root)]
    return [limit for limit in limits if limit is not None]


def bytes_of(text: str) -> int | None:
    """`4GB`, `512 MB` or `1.5GiB` as a number of bytes; None where it is written in another way."""
    number = text.strip().upper().rstrip("BIGMT").strip()
    unit = text.strip().upper().removeprefix(number).strip()
    try:
        return int(float(number) * UNITS[unit if unit.endswith("B") else f"{unit}B"])
    except (ValueError, OverflowError, KeyError):
        return None


def _limit(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # absent, or `max`
        return None
