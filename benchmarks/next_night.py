"""A first night and then nights of 1 % new events each: the processor time of every stage and model, with X'X by increments.

    python -m benchmarks.next_night [--nights 10] [--share 0.01] [--models A,B,...] [--keep FOLDER]
    python -m benchmarks.next_night --dataset ml-1m --source ratings.dat --separator :: --time 3
    python -m benchmarks.next_night --alone --dataset mine --source ratings.csv --header --time 3 --models default --set train.tune=auto

The log is cut into a first night and the last `--nights` parts of `--share` of its events each, by the time in the field `--time`
of a line, else in the order of the lines. Without a log one is made up: `--users` users, a long-tailed popularity, and
events in sessions, of which a user has three at different times. Each night is `flows.backfill` on one more file in the same home,
in a process of its own; protocols and models as given.

Prints the processor seconds of the run's process by stage and model (without Prefect's server, which is one of its own), for the first night, the mean of the others, and for two homes
that were made from nothing with all files, one with the store of sums and one without. Then for every X'X of the last night what it took
by increments, reading and writing included, and what summing it from nothing takes, and whether the bits are equal; and whether
what was published and the fits behind it are equal, byte for byte, in all three homes. With `--alone` there are no homes made from nothing,
and nothing is compared; `--models default` are the data set's own, and `train.tune=auto` searches their settings in the first night.
"""

import argparse
import itertools
import json
import logging
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np

from benchmarks.mrf_dense import long_tailed
from models.numerics import gram_sums
from tasks.stores import grams

DONE = re.compile(r"(.+): done in ")
OF_THE_RUN = ("published.duckdb", "manifest.json")  # published files that are no function of the log
Rows = list[tuple[str, float]]


class Seconds(logging.Handler):
    """Processor seconds of this process from the end of one stage to that of the next, by the stage's name."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.last = [], time.process_time()

    def emit(self, record: logging.LogRecord) -> None:
        if found := DONE.match(record.getMessage()):
            now = time.process_time()
            self.rows.append((found[1], now - self.last))
            self.last = now


def measured(sums: Callable, rows: list[tuple], seconds: Seconds) -> Callable:
    """`grams.sums`, noting what it took, and what the same from nothing does, beside whether the bits are equal.

    What the latter takes is left out of the stage's `seconds`.
    """

    def timed(home, digest, interactions, exponent, threads):
        began = time.process_time()
        found = sums(home, digest, interactions, exponent, threads)
        took = time.process_time() - began
        if found is not None:
            own, apart = np.empty(len(found)), time.process_time()
            gram_sums.fill(interactions, exponent, threads, own)
            from_nothing = time.process_time() - apart
            rows.append((exponent, interactions.shape, took, from_nothing, bool((own == found).all())))
            seconds.last += time.process_time() - apart
        return found

    return timed


def one_night(arguments: list[str], without_sums: bool) -> None:
    """Run `flows.backfill` here; the last line on stdout is what it took, as JSON."""
    from flows import backfill, sequence  # noqa: F401  (what a command imports first is a row of its own)

    seconds, sums = Seconds(), []
    seconds.rows.append(("imports", seconds.last))
    logging.getLogger("tasks.orchestration.stage_task").addHandler(seconds)
    instead = (lambda *_: None) if without_sums else measured(grams.sums, sums, seconds)
    with patch.object(grams, "sums", instead):
        status = backfill.main(arguments)
    print(json.dumps({"stages": seconds.rows, "sums": sums}))
    sys.exit(status)


def run(arguments: list[str], log: Path, *, without_sums: bool = False) -> dict:
    """One night in a process of its own; what `one_night` says."""
    command = [sys.executable, "-m", "benchmarks.next_night", "--inside", *(["--without-sums"] if without_sums else [])]
    with log.open("w") as errors:
        ended = subprocess.run([*command, *arguments], stdout=subprocess.PIPE, stderr=errors, text=True, check=False)
    if ended.returncode:
        sys.exit(f"the night ended with status {ended.returncode}; see {log}")
    return json.loads(ended.stdout.splitlines()[-1])


def cut(lines: list[str], header: list[str], nights: int, share: float, folder: Path, suffix: str) -> list[Path]:
    """Files of the first night and of those after it."""
    each = round(share * len(lines))
    starts = [0, *(len(lines) - each * left for left in range(nights, 0, -1)), len(lines)]
    files = []
    for number, (first, end) in enumerate(itertools.pairwise(starts)):
        files.append(folder / f"ratings-{number:02}{suffix}")
        files[-1].write_text("\n".join([*header, *lines[first:end]]) + "\n")
    return files


def made_up(users: int, items: int, likes: int) -> list[str]:
    """Lines of user and item, in the order of the users' sessions."""
    draws, edges = np.random.default_rng(1), long_tailed(users, items, likes).tocoo()
    sessions = draws.random((users, 3))
    when = sessions[edges.row, draws.integers(3, size=edges.nnz)]
    order = np.argsort(when, kind="stable")
    return [f"{user},{item}" for user, item in zip(edges.row[order].tolist(), edges.col[order].tolist(), strict=True)]


def published(home: Path) -> dict[str, bytes]:
    """What the last run published, the model with it, by file."""
    folder = (home / "published").resolve()
    files = [file for file in folder.rglob("*") if file.is_file() and file.name not in OF_THE_RUN]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def fits(home: Path) -> dict[str, bytes]:
    """The arrays of every fit, by model and digest."""
    return {str(file.relative_to(home / "models")): file.read_bytes() for file in (home / "models").rglob("*.npy")}


def table(columns: dict[str, list[dict]]) -> None:
    """Processor seconds by stage, the mean over the nights of a column."""
    names = list(dict.fromkeys(name for nights in columns.values() for night in nights for name, _ in night["stages"]))
    print(f"{'':42}" + "".join(f"{title:>18}" for title in columns))
    for name in [*names, "in all"]:
        cells = []
        for nights in columns.values():
            of = [sum(took for stage, took in night["stages"] if name in (stage, "in all")) for night in nights]
            cells.append(f"{np.mean(of):18.2f}")
        print(f"{name:42}" + "".join(cells))


def main() -> None:
    if "--inside" in sys.argv:
        rest = [one for one in sys.argv[1:] if one not in ("--inside", "--without-sums")]
        one_night(rest, "--without-sums" in sys.argv)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.next_night", description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="shop")
    parser.add_argument("--source", type=Path, help="a log, one event a line; by default one is made up")
    parser.add_argument("--header", action="store_true", help="its first line names the columns")
    parser.add_argument("--separator", default=",")
    parser.add_argument("--time", type=int, help="the field, from 0, by whose number its lines are put in order")
    parser.add_argument("--users", type=int, default=6000, help="of a log that is made up")
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--likes", type=int, default=100, help="a user, repeats folded")
    parser.add_argument("--nights", type=int, default=10)
    parser.add_argument("--share", type=float, default=0.01, help="of the log's events, each night")
    parser.add_argument("--models", default="popularity,mrf_dense,mrf_sparse,slim")
    parser.add_argument("--protocols", default="strong_generalization")
    parser.add_argument("--alone", action="store_true", help="the nights, and no home that is made from nothing")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--keep", type=Path, help="where the homes and the runs' logs go, and stay")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as aside:
        folder = given.keep or Path(aside)
        folder.mkdir(parents=True, exist_ok=True)
        measure(given, folder)


def measure(given: argparse.Namespace, folder: Path) -> None:
    """Cut the log, run every night, and print what they took."""
    if given.source:
        lines = given.source.read_text(encoding="latin-1").splitlines()
        header, lines = (lines[:1], lines[1:]) if given.header else ([], lines)
        if given.time is not None:
            lines.sort(key=lambda line: int(line.split(given.separator)[given.time]))
        suffix = given.source.suffix
    else:
        header, lines, suffix = ["user,item"], made_up(given.users, given.items, given.likes), ".csv"
    files = cut(lines, header, given.nights, given.share, folder, suffix)
    settings = ["train.tune=off", "publish.model=slim", *given.set]
    models = [] if given.models == "default" else ["--models", given.models]
    plan = [*models, "--protocols", given.protocols, "--threads", "1", "--set", *settings]

    def arguments(home: str, sources: list[Path]) -> list[str]:
        return ["--dataset", given.dataset, "--home", str(folder / home), "--source", *map(str, sources), *plan]

    nights = []
    for number, file in enumerate(files):
        nights.append(run(arguments("nights", [file]), folder / f"night-{number}.log"))
        print(f"night {number} is done, {sum(took for _, took in nights[-1]['stages']):.1f} s", file=sys.stderr)
    print(f"{len(lines):,} events, {given.nights} nights of {given.share:.1%}; processor seconds, one thread\n")
    columns = {"first night": nights[:1], "next, the mean": nights[1:]}
    if given.alone:
        table(columns)
        return
    whole = run(arguments("whole", files), folder / "whole.log")
    plain = run(arguments("plain", files), folder / "plain.log", without_sums=True)
    table(columns | {"from nothing": [whole], "without sums": [plain]})
    print(f"\n{'sums of':34}{'by increments':>16}{'from nothing':>16}  equal bits")
    for exponent, shape, took, from_nothing, equal in nights[-1]["sums"]:
        what = f"{shape[0]} x {shape[1]}, exponent {exponent:g}"
        print(f"{what:34}{took:16.3f}{from_nothing:16.3f}  {'yes' if equal else 'NO'}")
    homes = [folder / home / given.dataset for home in ("nights", "whole", "plain")]
    first, *others = map(published, homes)
    print(f"published files of all three homes equal: {all(other == first for other in others)} ({len(first)} files)")
    of_nights, *others = map(fits, homes)
    equal = all(of_nights.get(place) == content for other in others for place, content in other.items())
    print(f"arrays of the last night's fits equal: {equal} ({len(others[0])} arrays)")


if __name__ == "__main__":
    main()
