"""Measure the CPU seconds of whole runs of the demo: a first one, nights with nothing new, and with one new file.

    python -m benchmarks.nights [--repeats 3] [--set demo.users=300 demo.items=200 demo.likes=6000]

Each run is the README's command in a process of its own. A run before them compiles the kernels. CPU seconds are those
of the run with all processes that it starts, Prefect's temporary server among them. Prints the least and the median of
the repeats.
"""

import statistics
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.common import parse_options, print_head, print_row, run_command


def write_ratings(file: Path, seed: int) -> Path:
    """Write 3,000 ratings in the demo's format, five stars of users and items with low numbers."""
    pairs = np.random.default_rng(seed).integers(1, 100, size=(2_900, 2)).tolist()
    days = f"2006-01-{seed + 1:02}"
    lines = [f"{item}:\n" + "".join(f"{user},5,{days}\n" for user, of in pairs if of == item) for item in range(1, 100)]
    file.write_text("".join(lines))
    return file


def main() -> None:
    options = parse_options(__doc__, repeats=3, set=[])
    with tempfile.TemporaryDirectory() as name:
        folder, environment = Path(name), {"PREFECT_API_URL": "", "PREFECT_HOME": f"{name}/prefect"}

        def measure(home: str, *more: object) -> float:
            words = ["flows.backfill", "--dataset", "demo", "--home", folder / home, *more]
            words += ["--set", *options.set] if options.set else []
            if (run := run_command(words, folder / "log", environment=environment)).result:
                raise SystemExit((folder / "log").read_text()[-2000:])
            return run.cpu

        measure("before")
        costs = {"first": [measure(f"home-{number}") for number in range(options.repeats)]}
        costs["nothing new"] = [measure("home-0") for _ in range(options.repeats)]
        new = [write_ratings(folder / f"new-{number}.txt", number) for number in range(options.repeats)]
        costs["one new file of 3,000 lines"] = [measure("home-0", "--source", file) for file in new]
    print_head(["run", "CPU s, least", "median"])
    for kind, seconds in costs.items():
        print_row([kind, f"{min(seconds):.1f}", f"{statistics.median(seconds):.1f}"])


if __name__ == "__main__":
    main()
