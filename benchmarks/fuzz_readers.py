"""Compare the readers with a naive record-by-record oracle on random hostile logs.

    python -m benchmarks.fuzz_readers [--minutes 1] [--seed 0]

Draws small logs of every format, with damaged lines, bytes and files, and compares the events, in order, and the
number of rejected lines with those of a naive reader (`tests/tasks/ingest/hostile_logs.py`), which shares no code with
the product. A log that no reader can read must be refused with a message that names it. Prints how many inputs of each
format were read, refused and misread; each misread input with its seed, the first difference and its bytes. Exit
status: 0 if nothing was misread, else 1. For a small run: `--minutes 0.05`.
"""

import itertools
import logging
import random
import tempfile
import time
from collections import Counter, namedtuple
from dataclasses import replace
from pathlib import Path

import duckdb

from benchmarks.common import parse_options
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.ingest.load import load_logs
from oneclass.tasks.ingest.sources import scan_logs
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home, Limits
from tests.tasks.ingest.hostile_logs import FORMATS, Case, read_naively

EVENTS = "select user_id, item_id, value, epoch(occurred_at) from raw.events order by line_number, item_id"
Finding = namedtuple("Finding", "format seed difference case")  # a misread input and its first difference


def fuzz_readers(
    folder: Path, seed: int, rounds: int | None = None, minutes: float = 1, batch: int = 20
) -> tuple[Counter, list[Finding]]:
    """Read random logs; returns the number of inputs by (format, "read" or "refused"), and the misread ones.

    Args:
        folder: of the inputs and a warehouse.
        rounds: of `batch` inputs of each format; by default as many as the minutes allow.
    """
    counts, findings, until = Counter(), [], time.monotonic() + 60 * minutes
    home = Home(folder, "fuzz", Limits(threads=2, memory=1 << 30))
    with warehouse.open_warehouse(home) as connection:
        for number in itertools.count() if rounds is None else range(rounds):
            if rounds is None and time.monotonic() > until:
                break
            for name, index in itertools.product(FORMATS, range(batch)):
                case = FORMATS[name](random.Random(f"{seed}-{number}-{name}-{index}"))
                outcome = read_case(connection, folder / "case", case)
                counts[name, "refused" if isinstance(outcome, str) and case.is_unreadable else "read"] += 1
                if difference := find_difference(case, outcome):
                    findings.append(Finding(name, f"{seed}-{number}-{name}-{index}", difference, case))
    return counts, findings


def read_case(connection: duckdb.DuckDBPyConnection, folder: Path, case: Case) -> tuple[list, int] | str:
    """Read a log by the product; returns its events and the number of rejects, or the error message."""
    path = folder / case.name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(case.content)
    connection.begin()
    try:
        load_logs(connection, list(enumerate(scan_logs([path], case.dataset), 1)), folder, case.dataset)
        events = connection.execute(EVENTS).fetchall()
        return events, warehouse.fetch_row(connection, "select count(*) from raw.rejects")[0]
    except OneclassError as error:
        return str(error) if str(path) in str(error) else f"the message does not name the file: {error}"
    except duckdb.Error as error:
        return f"the message does not name the file: {type(error).__name__}: {error}"
    finally:
        connection.rollback()


def find_difference(case: Case, outcome: tuple[list, int] | str) -> str:
    """Describe the first difference from the naive reader; empty if there is none."""
    if isinstance(outcome, str):
        text = case.text.decode(errors="replace").removeprefix("\ufeff")
        is_empty = not text.strip() or read_naively(case)[:2] == ([], 0)
        is_no_log = case.table is None and (is_empty or case.text.count(0) > len(case.text) // 10)
        may_be_refused = case.is_unreadable or is_no_log or not read_naively(case)[2]
        return "" if may_be_refused and "does not name" not in outcome else f"refused: {outcome[:300]}"
    if case.is_unreadable:
        return "read, although it is cut short or holds a NUL"
    (expected, rejects, is_whole), (events, rejected) = read_naively(case), outcome
    if not is_whole and rejected:  # a quoted field may go on, or not
        forms = itertools.product(("delimited", "unquoted"), case.text.splitlines())
        lines = (read_naively(replace(case, layout=layout, text=line))[0] for layout, line in forms)
        known = {*expected, *itertools.chain(*lines)}
        expected, rejects = [one for one in events if one in known], rejected
    if expected != events:
        missing = [one for one in expected if one not in events][:2]
        return f"events: missing {missing}, not expected {[one for one in events if one not in expected][:2]}"
    return f"{rejected} rejects instead of {rejects}" if rejected != rejects else ""


def main() -> int:
    options = parse_options(__doc__, minutes=1.0, seed=0)
    logging.disable(logging.INFO)  # progress of each statement
    with tempfile.TemporaryDirectory() as folder:
        counts, findings = fuzz_readers(Path(folder), options.seed, minutes=options.minutes)
    for name in FORMATS:
        misread = sum(one.format == name for one in findings)
        print(f"{name:12} read {counts[name, 'read']:7,}  refused {counts[name, 'refused']:6,}  misread {misread:5,}")
    for one in findings[:20]:
        print(f"\n{one.seed}: {one.difference}\n{one.case.content[:2000]!r}")
    return int(bool(findings))


if __name__ == "__main__":
    raise SystemExit(main())
