"""The machine and the packages that a run uses, and the energy that it draws by the counters of RAPL.

Linux shows the counters of Intel's and AMD's processors as folders `intel-rapl:*` of `/sys/class/powercap`. Most
systems let only root read them (`chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj` lets everybody).
"""

import contextlib
import functools
import platform
import re
import threading
from collections.abc import Generator
from importlib.metadata import Distribution, distributions, version
from pathlib import Path

from oneclass.tasks.stores import resources

POWERCAP = Path("/sys/class/powercap")
# Of the whole processor and of memory beside it; others are parts of a package (core, uncore) or contain it (psys).
COUNTED_DOMAINS = ("package", "dram")
SAMPLE_SECONDS = 20.0  # a counter of the smallest range, 65 kJ, wraps around after 65 s at 1 kW


def describe_machine(threads: int) -> dict[str, str | int]:
    """Describe this machine: processor, cores, memory that a process may use in bytes, system and Python.

    Args:
        threads: the cores that a run uses of it.
    """
    return {
        "processor": _find_processor(),
        "cores": resources.available_cores(),
        "used_cores": threads,
        "memory_bytes": resources.memory_limit(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _find_processor() -> str:
    cpu_info = resources.PROC / "cpuinfo"
    if cpu_info.is_file():
        for line in cpu_info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@functools.cache
def library_version(name: str) -> str:
    """Return the version of an installed library, whose metadata take milliseconds to read."""
    return version(name)


@functools.lru_cache(maxsize=1)
def list_packages() -> dict[str, str]:
    """List the version of every installed package by its name, oneclass aside."""
    found = dict(filter(None, map(_find_name_and_version, distributions())))
    return {name: found[name] for name in sorted(found, key=str.lower) if name != "oneclass"}


def _find_name_and_version(package: Distribution) -> tuple[str, str] | None:
    """Return the name and version in a package's metadata, which `Distribution.metadata` parses to their end."""
    text = package.read_text("METADATA") or package.read_text("PKG-INFO") or ""
    head = text.partition("\n\n")[0]
    name, version = (re.search(rf"^{key}: *(.*\S)", head, re.MULTILINE) for key in ("Name", "Version"))
    return (name[1], version[1]) if name and version else None


class EnergyMeter:
    """Adds up what the RAPL counters of packages and memory count, over wrap-arounds.

    Attributes:
        joules: of the whole machine until the last sample, other processes included; None if a counter cannot be read.
    """

    def __init__(self, powercap: Path) -> None:
        self._last: dict[Path, int] = {}
        self._lock = threading.Lock()
        self.joules: float | None = None
        with contextlib.suppress(OSError, ValueError):
            domains = [
                domain
                for domain in sorted(powercap.glob("intel-rapl:*"))
                if (domain / "name").read_text().startswith(COUNTED_DOMAINS)
            ]
            self._last = {domain: _read_number(domain / "energy_uj") for domain in domains}
            self.joules = 0.0 if domains else None

    def sample(self) -> float | None:
        """Add what was counted after the last sample and return `joules`; each counter may have wrapped around once."""
        with self._lock:
            if self.joules is not None:
                try:
                    self.joules += sum(map(self._count_domain, self._last)) / 1e6
                except (OSError, ValueError):
                    self.joules = None
            return self.joules

    def _count_domain(self, domain: Path) -> int:
        """Return the microjoules of one counter after its last sample."""
        last, now = self._last[domain], _read_number(domain / "energy_uj")
        self._last[domain] = now
        return now - last + (0 if now >= last else _read_number(domain / "max_energy_range_uj"))


def _read_number(file: Path) -> int:
    return int(file.read_text())


@contextlib.contextmanager
def measure_energy() -> Generator[EnergyMeter]:
    """Measure energy while a block of code runs, with a thread that samples before a counter wraps around twice."""
    meter, ended = EnergyMeter(POWERCAP), threading.Event()

    def sample_until_end() -> None:
        while not ended.wait(SAMPLE_SECONDS):
            meter.sample()

    sampler = threading.Thread(target=sample_until_end, name="energy", daemon=True)
    if meter.joules is not None:
        sampler.start()
    try:
        yield meter
    finally:
        ended.set()
        if sampler.is_alive():
            sampler.join()
