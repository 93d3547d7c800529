"""Runs that are killed, at every moment of a run or again and again; what the next run makes of what they left.

    python -m benchmarks.reliability.crash_recovery --moments all [--jobs 2] [--flow backfill|nightly|tuned|sweep]
    [--folder DIR] [--seed 1] python -m benchmarks.reliability.crash_recovery --kills 100 [--flow
    backfill|nightly|tuned|sweep] [--folder DIR] [--seed 1]

`backfill` trains all default models on a small demo log; `nightly` too, in a home that has seen a night, and one that
was killed, since when a new log came; `tuned` is a backfill that searches its models' settings (`train.tune=always`),
`sweep` the refits of a report's figure. Each has Prefect servers beside it.

`--moments`: one run is stopped, with all its threads, before each of its changes to the file system (files opened for
writing, renamed, removed; folders and links made), before and after each of DuckDB's commits, checkpoints and closings,
and at drawn times, above all while DuckDB writes. What then lies in its home is what a `kill -9` at that moment would
leave, for the system has taken over all that a process wrote. In a copy of it the same command runs, `--jobs` of them
side by side; its tables and published files are held against those of the run that was stopped, and the states of the
home's runs against those that Prefect shows. Moments that left equal homes are tried once. `--moments 120` tries so
many, drawn from all. Prints a table by stage.

`--kills`: runs in processes of their own get `kill -9`, at one of the next changes of files, or after a drawn time. The
next process continues from the home as it is, and may be killed too. Once a run ends well, the same is compared, and
the next chain of kills begins in an empty home. Prints kills by the stage that they fell into.

Exit status: 0 where all ended as the run that was left alone, else 1.
"""

import argparse
import math
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

from benchmarks.reliability.crashes import commands, processes, recoveries
from benchmarks.reliability.crashes.commands import FLOWS
from benchmarks.reliability.crashes.processes import OwnServer
from benchmarks.reliability.crashes.snapshots import Store

CPU, WALL = itemgetter("cpu"), itemgetter("wall")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--moments", help="all, or how many of them")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--flow", choices=FLOWS, default="backfill")
    parser.add_argument("--models", help="other models than the flow's own")
    parser.add_argument("--minutes", type=float, default=math.inf, help="of --moments: begin no recovery after so long")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--folder", type=Path, help="where all is kept meanwhile; by default a temporary one")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(words)
    until = time.monotonic() + 60 * given.minutes
    if given.models:
        FLOWS[given.flow] = replace(FLOWS[given.flow], models=given.models)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # ends the servers too
    with tempfile.TemporaryDirectory(dir=given.folder, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        os.environ |= {"PREFECT_HOME": str(folder / "prefect"), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
        server = OwnServer(folder / "prefect")
        try:
            commands.warm()
            server.wait()
            if given.moments is None:
                drawn = random.Random(given.seed)
                return int(not recoveries.chains(given.flow, given.kills, folder / "runs", server, drawn))
            return _at_moments(given, folder, server, until)
        finally:
            server.end()


def _at_moments(given: argparse.Namespace, folder: Path, server: OwnServer, until: float) -> int:
    """Recover the homes that a run would leave; the exit status."""
    store, began = Store(folder / "kept"), time.monotonic()
    run = recoveries.stopped(given.flow, folder / "stopped", store, server.url, given.seed)
    print(
        f"{len(run.moments)} moments in {time.monotonic() - began:.0f} s, {len(run.homes)} different homes of up to "
        f"{store.largest / 1e6:.1f} MB; kept: {store.bytes_kept / 1e6:.0f} MB",
        flush=True,
    )
    server.end()
    wanted = len(run.homes) if given.moments == "all" else min(int(given.moments), len(run.homes))
    homes = random.Random(given.seed).sample(list(run.homes.values()), wanted)
    beside = processes.copies(min(given.jobs, wanted), folder / "prefect", folder)
    try:
        results = recoveries.recovered(given.flow, run, homes, store, beside, folder, until)
    finally:
        for one in beside:
            one.end()
    for result in filter(recoveries.differs, results.values()):
        print(result["log"], {name: result[name] for name in result if name != "log"}, sep="\n")
    print(*recoveries.table(given.flow, run, results), "", sep="\n")
    if not results:
        print("no home was recovered within the time")
        return 1
    wrong, cpu, wall = (sum(map(of, results.values())) for of in (recoveries.differs, CPU, WALL))
    unknown = sum(one.get("state") == recoveries.NONE_YET for one in results.values())
    print(
        f"{len(results)} of {len(run.homes)} homes recovered, {wrong} of them not to equal rows, bytes and states; "
        f"{unknown} knew nothing yet of the run that was killed; each took {cpu / len(results):.1f} s of processor "
        f"time, {wall / len(results):.1f} s by the clock; {time.monotonic() - began:.0f} s in all on {len(beside)} jobs"
    )
    return int(wrong > 0)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # DuckDB's binding would report the types that were loaded for the processes as leaked
