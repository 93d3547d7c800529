"""Compare the readers with a line-by-line oracle on random hostile logs.

    python -m benchmarks.reliability.fuzz_readers [--minutes 1] [--seed 0] [--keep FOLDER]

Draws small logs of every format, with damaged lines, bytes and files, and compares the events and the rejected lines
with those of `benchmarks/reliability/fuzzing.py`. A log that no reader can read must be refused with a message that
names it. Prints how many inputs of each format were read, refused and misread; each misread input with its seed and the
first difference. Exit status: 0 if nothing was misread, else 1.
"""

import argparse
import logging
import random
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import duckdb

from benchmarks.reliability.fuzzing import FORMATS, Case, read_naively
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.ingest.load import load_logs
from oneclass.tasks.ingest.sources import SourceScanner
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home, Limits

LOGS_PER_BATCH = 20  # read by one statement
EVENTS = """
    select file_id, line_number, user_id, item_id, value, epoch(occurred_at) from raw.events order by file_id,
    line_number
"""
REJECTS = "select file_id, line_number from raw.rejects order by all"


@dataclass(frozen=True)
class Finding:
    """A misread input and its first difference."""

    format: str
    seed: str
    difference: str
    case: Case


def fuzz_readers(
    folder: Path, seed: int, rounds: int | None = None, minutes: float = 1, batch: int = LOGS_PER_BATCH
) -> tuple[Counter, list[Finding]]:
    """Read random logs; returns the number of inputs by (format, "read" or "refused"), and the misread ones.

    Args:
        folder: of the inputs and a warehouse.
        rounds: of `batch` inputs of each format; by default as many as the minutes allow.
    """
    counts: Counter = Counter()
    findings: list[Finding] = []
    home, until, number = Home(folder, "fuzz", Limits(threads=2, memory=1 << 30)), time.monotonic() + 60 * minutes, 0
    with warehouse.open_warehouse(home) as connection:
        while number < rounds if rounds is not None else time.monotonic() < until:
            for name, draw in FORMATS.items():
                seeds = [f"{seed}-{number}-{name}-{index}" for index in range(batch)]
                cases = {one: draw(random.Random(one)) for one in seeds}
                for one, outcome in _read_cases(connection, folder, cases).items():
                    counts[name, "refused" if isinstance(outcome, str) and cases[one].is_unreadable else "read"] += 1
                    if difference := _find_difference(cases[one], outcome):
                        findings.append(Finding(name, one, difference, cases[one]))
            number += 1
    return counts, findings


def _read_cases(connection: duckdb.DuckDBPyConnection, folder: Path, cases: dict[str, Case]) -> dict[str, tuple | str]:
    """Read some logs by one statement; returns for each its events and rejects, or the error message."""
    outcomes: dict[str, tuple | str] = {}
    logs, numbers = {}, {}
    for number, (seed, case) in enumerate(cases.items(), 1):
        path = folder / str(number) / case.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(case.content)
        try:
            (log,) = SourceScanner(case.dataset).scan([path])
            logs[number], numbers[seed] = log, number
        except OneclassError as error:
            outcomes[seed] = str(error) if str(path) in str(error) else f"the message does not name the file: {error}"
    dataset = next(iter(cases.values())).dataset
    connection.begin()
    try:
        (folder / "scratch").mkdir(exist_ok=True)
        load_logs(connection, list(logs.items()), folder / "scratch", dataset)
        events, rejects = connection.execute(EVENTS).fetchall(), connection.execute(REJECTS).fetchall()
        for seed, number in numbers.items():
            of_log = [tuple(row[1:]) for row in events if row[0] == number]
            outcomes[seed] = of_log, [line for file_id, line in rejects if file_id == number]
    except (duckdb.Error, OneclassError) as error:
        message = f"{type(error).__name__}: {error}"
        connection.rollback()
        connection.begin()
        if len(numbers) == 1:
            return {**outcomes, next(iter(numbers)): message}
        for seed in numbers:  # read alone, to find the log that failed
            connection.rollback()
            outcomes |= _read_cases(connection, folder, {seed: cases[seed]})
            connection.begin()
    finally:
        connection.rollback()
    return outcomes


def _find_difference(case: Case, outcome: tuple | str) -> str:
    if isinstance(outcome, str):
        is_empty = case.table is None and read_naively(case) == ([], [])
        is_named = "does not name" not in outcome and not outcome.startswith(("Exception", "OneclassError"))
        return "" if (case.is_unreadable or is_empty) and is_named else f"refused: {outcome[:300]}"
    if case.is_unreadable:
        return "read, although it is cut short or holds a NUL"
    events, rejects = read_naively(case)
    pairs = (("event", sorted(events, key=str), sorted(outcome[0], key=str)), ("reject", rejects, outcome[1]))
    for kind, expected, got in pairs:
        if expected != got:
            missing = [one for one in expected if one not in got][:2]
            return f"{kind}s: missing {missing}, not expected {[one for one in got if one not in expected][:2]}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder of the misread inputs")
    options = parser.parse_args()
    logging.disable(logging.INFO)  # progress of each statement
    with tempfile.TemporaryDirectory() as folder:
        counts, findings = fuzz_readers(Path(folder), options.seed, minutes=options.minutes)
    for name in FORMATS:
        misread = sum(one.format == name for one in findings)
        print(f"{name:12} read {counts[name, 'read']:7,}  refused {counts[name, 'refused']:6,}  misread {misread:5,}")
    for one in findings[:20]:
        print(f"\n{one.seed}: {one.difference}")
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            (options.keep / one.seed.replace(" ", "-")).write_bytes(one.case.content)
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
