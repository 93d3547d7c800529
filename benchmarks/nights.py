"""Measure the CPU seconds of whole runs of the demo: a first one, nights with nothing new, and with one new file.

    python -m benchmarks.nights [--repeats 3] [--set demo.users=300 demo.items=200 demo.likes=6000]

Each run is the README's command in a process, after one that compiles the kernels; its CPU seconds include those of all
processes that it starts, Prefect's temporary server among them. The aims are shares of what 79c418b8 takes.
"""

import tempfile
from pathlib import Path

import numpy as np

from benchmarks.common import parse_options, print_head, print_row, run_command
from benchmarks.netflix_size import STAGE_DONE

AIMS = {"first": 0.6, "nothing new": 0.75, "one new file of 3,000 lines": 0.65}


def main() -> None:
    options = parse_options(__doc__, repeats=3, set=[])
    with tempfile.TemporaryDirectory() as name:
        folder, environment = Path(name), {"PREFECT_API_URL": "", "PREFECT_HOME": f"{name}/prefect"}

        def measure(home: str, *more: object) -> tuple[float, str]:
            words = ["flows.backfill", "--dataset", "demo", "--home", folder / home, *more]
            words += ["--set", *options.set] if options.set else []
            cpu = run_command(words, folder / "log", environment=environment).cpu
            return cpu, ", ".join(map(" ".join, STAGE_DONE.findall((folder / "log").read_text())))

        measure("before")
        repeats = range(options.repeats)
        first = min(measure(f"home-{number}") for number in repeats)
        quiet = min(measure("home-0") for _ in repeats)
        for number in repeats:
            pairs = np.random.default_rng(number).integers(1, 100, size=(3_000, 2)).tolist()
            lines = "".join(f"{user},{item},5,2006-01-0{number + 1}\n" for user, item in pairs)
            (folder / f"{number}.csv").write_text(f"user,item,rating,date\n{lines}")
        grown = min(measure("home-0", "--source", folder / f"{number}.csv") for number in repeats)
    print_head(["run", "CPU s, least", "aim", "its stages by the clock"])
    for (kind, aim), (seconds, stages) in zip(AIMS.items(), (first, quiet, grown), strict=True):
        print_row([kind, f"{seconds:.1f}", aim, stages])


if __name__ == "__main__":
    main()
