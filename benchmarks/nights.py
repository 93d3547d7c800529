"""Measure the CPU seconds of whole runs of the demo: a first one, nights with nothing new, and with one new file.

    python -m benchmarks.nights [--repeats 3] [--set demo.users=300 demo.items=200 demo.likes=6000]

Each run is the README's command in a process, after one that compiles the kernels; its CPU seconds include those of all
processes that it starts, Prefect's temporary server among them.
"""

import tempfile
from pathlib import Path

import numpy as np

from benchmarks.common import parse_options, print_head, print_row, run_command


def write_ratings(file: Path, seed: int) -> Path:
    """Write 3,000 ratings of five stars by users and of items with low numbers."""
    pairs = np.random.default_rng(seed).integers(1, 100, size=(3_000, 2)).tolist()
    file.write_text("user,item,rating,date\n" + "".join(f"{u},{i},5,2006-01-0{seed + 1}\n" for u, i in pairs))
    return file


def main() -> None:
    options = parse_options(__doc__, repeats=3, set=[])
    with tempfile.TemporaryDirectory() as name:
        folder, environment = Path(name), {"PREFECT_API_URL": "", "PREFECT_HOME": f"{name}/prefect"}

        def measure(home: str, *more: object) -> float:
            words = ["flows.backfill", "--dataset", "demo", "--home", folder / home, *more]
            words += ["--set", *options.set] if options.set else []
            return run_command(words, folder / "log", environment=environment).cpu

        measure("before")
        costs = {"first": [measure(f"home-{number}") for number in range(options.repeats)]}
        costs["nothing new"] = [measure("home-0") for _ in range(options.repeats)]
        new = (write_ratings(folder / f"new-{number}.csv", number) for number in range(options.repeats))
        costs["one new file of 3,000 lines"] = [measure("home-0", "--source", file) for file in new]
    print_head(["run", "CPU s, least"])
    for kind, seconds in costs.items():
        print_row([kind, f"{min(seconds):.1f}"])


if __name__ == "__main__":
    main()
