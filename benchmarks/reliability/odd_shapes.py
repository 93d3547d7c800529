"""Run the backfill with default settings on small logs of odd shapes; no shape of a log may break a contract.

    python -m benchmarks.reliability.odd_shapes [--random 20] [--seed 0]

There are named shapes and random ones: few users or items, a user or an item with nearly all events, repeated events,
with times or without, values from 1 to 5 or none. Prints a line for each run with its exit status, and the first broken
rule or the last line. Exit status: 0 if all runs ended with 0, else 1. A random log follows from `--seed` and its
number.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

BROKEN_RULE = re.compile(r"the contract of (\S+) is broken: (\w+)")


def build_named_shapes() -> dict[str, list[tuple[int, int]]]:
    """Build the events, a user and an item each, of the named shapes."""
    pairs = np.random.default_rng(0).integers(0, 300, (600, 2))
    return {
        "one event": [(0, 0)],
        "two users, two items": [(0, 0), (1, 1), (0, 1)],
        "one user": [(0, item) for item in range(50)],
        "one item": [(user, 0) for user in range(50)],
        "everybody likes all": [(user, item) for user in range(10) for item in range(10)],
        "everybody likes another item": [(user, user) for user in range(200)],
        "a star": [(user, 0) for user in range(100)] + [(0, item) for item in range(100)],
        "three items": [(user, item % 3) for user, item in pairs.tolist()],
        "two worlds": [(user, user // 10 * 5 + item) for user in range(20) for item in range(5)],
        "a whale": [(0, item) for item in range(1000)] + [(1 + user % 40, item) for user, item in pairs[:80].tolist()],
        "a collector": [(0, 100 + item) for item in range(5000)]
        + [(1 + user % 200, item) for user, item in pairs.tolist()],
        "the same events again": [(user % 20, item % 4) for user, item in pairs.tolist()],
    }


def draw_shape(generator: np.random.Generator) -> list[tuple[int, int]]:
    """Draw the events of a random shape: users and items are uniform or have a long tail."""
    columns = []
    events = int(generator.integers(1, 400))
    for _ in range(2):
        ids = int(np.exp(generator.uniform(0, np.log(200))))
        tail = generator.choice([0.0, 1.0, 2.0])
        weights = (1.0 + np.arange(ids)) ** -tail
        columns.append(generator.choice(ids, events, p=weights / weights.sum()).tolist())
    return list(zip(*columns, strict=True))


def write_log(path: Path, events: list[tuple[int, int]], generator: np.random.Generator) -> str:
    """Write a CSV file of the events, with times and values or without; returns a description."""
    has_times, has_values = (generator.random(2) < 0.5).tolist()
    names = ["user", "item", *["timestamp"] * has_times, *["rating"] * has_values]
    lines = [",".join(names)]
    for user, item in events:
        cells = [f"u{user}", f"i{item}"]
        cells += [str(1_600_000_000 + int(generator.integers(0, 10**7)))] if has_times else []
        cells += [str(int(generator.integers(1, 6)))] if has_values else []
        lines.append(",".join(cells))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return f"{'times' if has_times else 'no times'}, {'values' if has_values else 'no values'}"


def iterate_logs(folder: Path, random: int, seed: int) -> Iterator[tuple[str, Path]]:
    """Write one log after the other; yields a description and the file."""
    shapes = {**build_named_shapes()}
    for number in range(random):
        shapes[f"random {number}"] = draw_shape(np.random.default_rng([seed, number]))
    for index, (name, events) in enumerate(shapes.items()):
        path = folder / f"shape_{index}.csv"
        columns = write_log(path, events, np.random.default_rng([seed, index, 1]))
        yield f"{name}: {len(events)} events, {columns}", path


def run_backfill(path: Path, home: Path) -> tuple[int, str]:
    """Run the backfill; returns its status, and the first rule that it broke or its last line."""
    command = [sys.executable, "-m", "flows.backfill", "--dataset", path.stem, "--source", str(path)]
    result = subprocess.run([*command, "--home", str(home)], capture_output=True, check=False, text=True)
    output = result.stdout + result.stderr
    broken = BROKEN_RULE.search(output)
    return result.returncode, " ".join(broken.groups()) if broken else output.strip().splitlines()[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        os.environ["PREFECT_HOME"] = str(Path(name) / "prefect")
        for log, path in iterate_logs(Path(name), options.random, options.seed):
            status, reason = run_backfill(path, Path(name) / "home")
            failed += status != 0
            print(status, log, reason if status else "", flush=True)
    print(f"{failed} runs did not end with status 0")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
