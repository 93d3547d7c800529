"""Ingest, binarize and split over partitions by user hash, on Dask, held against one machine's tables row for row.

    python -m benchmarks.partitions --parts 4 [--lines 1000000] [--workers 2]

The log is the demo's, in four files. Each file is ingested by a worker and its events are cut by the hash of the user's id; each
partition is binarized and split by a worker, with a DuckDB file of its own; two reductions number users and items as one machine
does and find the items of training users (`benchmarks.partitioned`). Beside it stand the stages themselves, on one machine.
Seconds are of the processor, one thread each; the stages on one machine check their contracts, and split makes matrices.

Prints CPU seconds a step, bytes that went between workers, and for each table the rows that only one of both has. The exit
status is 1 if there are such rows.
"""

import argparse
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from benchmarks.partitioned import reductions, steps, truth
from benchmarks.partitioned.layout import Layout
from benchmarks.posted import head, row
from tasks.cluster import ClusterSettings, Executor, open_executor
from tasks.demo.story import DemoSettings, make_demo
from tasks.stores.home import Home

SEED, LIKE_SHARE, LINES_OF_A_USER = 7, 0.5665, 209  # the shares are those of the Netflix Prize
THRESHOLD, FILES = 4, 4
HEADER = re.compile(rb"^(?=\d+:$)", re.MULTILINE)


def logs(folder: Path, lines: int, items: int, files: int) -> list[Path]:
    """The demo's log, its items cut into so many files."""
    users, likes = max(2, lines // LINES_OF_A_USER), round(lines * LIKE_SHARE)
    settings = DemoSettings(users=users, items=items, likes=likes, like_share=LIKE_SHARE)
    (whole,) = make_demo(Home(folder / "made", "demo"), settings, SEED)
    of_items = HEADER.split(whole.read_bytes())
    starts = [len(of_items) * number // files for number in range(files + 1)]
    paths = [folder / f"combined_data_{number}.txt" for number in range(1, files + 1)]
    for path, (first, end) in zip(paths, pairwise(starts), strict=True):
        path.write_bytes(b"".join(of_items[first:end]))
    return paths


def timed(step: Callable[[Layout], None], layout: Layout) -> list[float]:
    began = time.process_time()
    step(layout)
    return [time.process_time() - began]


def partitioned(executor: Executor, layout: Layout, sources: list[Path]) -> dict[str, list[float]]:
    """CPU seconds of each call of each step."""
    each = [(layout, part) for part in range(layout.parts)]
    return {
        "ingest a log, cut it": executor.map(
            steps.read, [(layout, number, str(source)) for number, source in enumerate(sources, 1)]
        ),
        "binarize": executor.map(steps.edges, each),
        "reduce: numbers": timed(reductions.number, layout),
        "renumber": executor.map(steps.numbered, each),
        "reduce: items of training users": timed(reductions.train_items, layout),
        "split": executor.map(steps.split, each),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--items", type=int, default=2_000)
    parser.add_argument("--min-user-edges", type=int, default=0, help="of binarize")
    parser.add_argument("--workers", type=int, default=2, help="processes of a Dask cluster; 0 for none")
    given = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores as it begins")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        layout = Layout(folder, given.parts, THRESHOLD, given.min_user_edges, held_out_share=0.1, seed=SEED)
        sources = logs(folder, given.lines, given.items, FILES)
        lines = sum(source.read_bytes().count(b"\n") for source in sources)
        print(f"{lines:,} lines, {sum(source.stat().st_size for source in sources) / 1e6:.1f} MB, {len(sources)} logs")
        alone = truth.one_machine(layout, sources)
        with open_executor(ClusterSettings(workers=given.workers or None), Home(folder, "demo"), steps.RUN) as executor:
            found = partitioned(executor, layout, sources)
        show(alone, found, lines)
        head("between workers", "bytes", "bytes a line")
        for what, size in reductions.sizes(layout).items():
            row(what, f"{size:,}", f"{size / lines:.3f}")
        head("table", "rows on one machine", "rows that only one of both has", "digests agree")
        answers = truth.compared(layout)
        for table, (rows, apart, same) in answers.items():
            row(table, f"{rows:,}", f"{apart:,}", "yes" if same else "no")
    print(f"\nload {os.getloadavg()[0]:.1f} at the end")
    sys.exit(any(apart or not same for _, apart, same in answers.values()))


def show(alone: dict[str, float], found: dict[str, list[float]], lines: int) -> None:
    head("one machine", "CPU s", "lines a CPU second")
    for name, seconds in alone.items():
        row(name, f"{seconds:.2f}", f"{lines / seconds:,.0f}")
    row("all", f"{sum(alone.values()):.2f}", f"{lines / sum(alone.values()):,.0f}")
    head("partitions", "CPU s", "of the longest", "calls")
    for name, seconds in found.items():
        row(name, f"{sum(seconds):.2f}", f"{max(seconds):.2f}", len(seconds))
    row("all", f"{sum(map(sum, found.values())):.2f}", f"{sum(map(max, found.values())):.2f}", "")


if __name__ == "__main__":
    main()
