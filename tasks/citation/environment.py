"""Describe the machine and the packages that a table depends on."""

import os
import platform
from importlib.metadata import distributions
from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")
RAPL_COUNTER = Path("/sys/class/powercap/intel-rapl:0/energy_uj")  # of the first socket, since a wrap-around


def describe_hardware() -> dict[str, str | int]:
    """Describe this machine: processor, cores, memory in bytes and system."""
    return {
        "processor": _find_processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _find_processor() -> str:
    if CPU_INFO.is_file():
        for line in CPU_INFO.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def read_energy_counter() -> int | None:
    """Read the RAPL counter in microjoules; None if there is none or this user may not read it."""
    try:
        return int(RAPL_COUNTER.read_text())
    except OSError:
        return None


def format_lock() -> str:
    """Return a requirements file that pins every installed package, oneclass itself aside."""
    pins = {f"{of.metadata['Name']}=={of.version}" for of in distributions() if of.metadata["Name"] != "oneclass"}
    return "\n".join([f"# Python {platform.python_version()}", *sorted(pins, key=str.lower), ""])
