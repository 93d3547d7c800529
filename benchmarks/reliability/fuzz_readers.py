"""Every reader on hostile logs, against an oracle that reads line by line.

    python -m benchmarks.reliability.fuzz_readers [--minutes 1] [--seed 0] [--keep FOLDER]

Makes small logs of every format at random, with damaged lines, bytes and files, and compares the events and the
rejected lines with what `benchmarks/reliability/fuzzing.py` makes of the same bytes. A log that no reader can read must
be refused with a message that names it. Prints how many inputs of each format were read, refused and misread; each
misread input with its seed and the first difference. Exit status: 0 where nothing was misread, else 1.
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

TOGETHER = 20  # logs that one statement may read
EVENTS = """
    select file_id, line_number, user_id, item_id, value, epoch(occurred_at) from raw.events order by file_id,
    line_number
"""
REJECTS = "select file_id, line_number from raw.rejects order by all"


@dataclass(frozen=True)
class Finding:
    """An input that was misread: which, and the first difference."""

    format: str
    seed: str
    difference: str
    case: Case


def fuzz(
    folder: Path, seed: int, rounds: int | None = None, minutes: float = 1, together: int = TOGETHER
) -> tuple[Counter, list[Finding]]:
    """Inputs counted by (format, "read" or "refused"), and findings.

    Args:
        folder: where the inputs and a warehouse are written.
        rounds: how many times `together` inputs of each format; by default as many as there is time for.
    """
    counts: Counter = Counter()
    findings: list[Finding] = []
    home, ends, number = Home(folder, "fuzz", Limits(threads=2, memory=1 << 30)), time.monotonic() + 60 * minutes, 0
    with warehouse.open_warehouse(home) as connection:
        while number < rounds if rounds is not None else time.monotonic() < ends:
            for name, make in FORMATS.items():
                seeds = [f"{seed}-{number}-{name}-{place}" for place in range(together)]
                cases = {one: make(random.Random(one)) for one in seeds}
                for one, found in _read(connection, folder, cases).items():
                    counts[name, "refused" if isinstance(found, str) and cases[one].refused else "read"] += 1
                    if difference := _difference(cases[one], found):
                        findings.append(Finding(name, one, difference, cases[one]))
            number += 1
    return counts, findings


def _read(connection: duckdb.DuckDBPyConnection, folder: Path, cases: dict[str, Case]) -> dict[str, tuple | str]:
    """What the readers make of each: its events and rejects, or the message of what went wrong."""
    found: dict[str, tuple | str] = {}
    logs, place = {}, {}
    for number, (seed, case) in enumerate(cases.items(), 1):
        path = folder / str(number) / case.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(case.content)
        try:
            (log,) = SourceScanner(case.dataset).scan([path])
            logs[number], place[seed] = log, number
        except OneclassError as error:
            found[seed] = str(error)
            if str(path) not in str(error):
                found[seed] = f"the message does not name the file: {error}"
    dataset = next(iter(cases.values())).dataset
    connection.begin()
    try:
        (folder / "scratch").mkdir(exist_ok=True)
        load_logs(connection, list(logs.items()), folder / "scratch", dataset)
        events, rejects = connection.execute(EVENTS).fetchall(), connection.execute(REJECTS).fetchall()
        for seed, number in place.items():
            of_log = [tuple(row[1:]) for row in events if row[0] == number]
            found[seed] = of_log, [line for file_id, line in rejects if file_id == number]
    except (duckdb.Error, OneclassError) as error:
        message = f"{type(error).__name__}: {error}"
        connection.rollback()
        connection.begin()
        if len(place) == 1:
            return {**found, next(iter(place)): message}
        for seed in place:  # one of them did it
            connection.rollback()
            found |= _read(connection, folder, {seed: cases[seed]})
            connection.begin()
    finally:
        connection.rollback()
    return found


def _difference(case: Case, found: tuple | str) -> str:
    if isinstance(found, str):
        nothing = case.table is None and read_naively(case) == ([], [])
        named = "does not name" not in found and not found.startswith(("Exception", "OneclassError"))
        return "" if (case.refused or nothing) and named else f"refused: {found[:300]}"
    if case.refused:
        return "read, although it is cut short or holds a NUL"
    events, rejects = read_naively(case)
    mine, theirs = sorted(events, key=str), sorted(found[0], key=str)
    for what, expected, got in (("event", mine, theirs), ("reject", rejects, found[1])):
        if expected != got:
            missing = [one for one in expected if one not in got][:2]
            return f"{what}s: missing {missing}, not expected {[one for one in got if one not in expected][:2]}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reliability.fuzz_readers", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a folder for the inputs that were misread")
    given = parser.parse_args()
    logging.disable(logging.INFO)  # the progress of each statement
    with tempfile.TemporaryDirectory() as folder:
        counts, findings = fuzz(Path(folder), given.seed, minutes=given.minutes)
    for name in FORMATS:
        misread = sum(one.format == name for one in findings)
        print(f"{name:12} read {counts[name, 'read']:7,}  refused {counts[name, 'refused']:6,}  misread {misread:5,}")
    for one in findings[:20]:
        print(f"\n{one.seed}: {one.difference}")
        if given.keep:
            given.keep.mkdir(parents=True, exist_ok=True)
            (given.keep / one.seed.replace(" ", "-")).write_bytes(one.case.content)
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
