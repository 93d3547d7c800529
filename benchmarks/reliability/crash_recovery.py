"""Kill runs at every moment or again and again, and compare what the next run leaves with an undisturbed run.

    python -m benchmarks.reliability.crash_recovery --moments all [--jobs 2] [--flow backfill|nightly|tuned|sweep]
        [--folder DIR] [--seed 1]
    python -m benchmarks.reliability.crash_recovery --kills 100 [--flow backfill|nightly|tuned|sweep]
        [--folder DIR] [--seed 1]

`backfill` trains all default models on a small demo log; `nightly` too, in a home with one finished and one killed
night and a new log; `tuned` is a backfill that searches its models' settings (`train.tune=always`), `sweep` makes the
refits of a report's figure. Prefect servers run beside each.

`--moments`: one run is stopped, with all its threads, before each of its changes of files (opened for writing, renamed,
removed; folders and links made), before and after each of DuckDB's commits, checkpoints and closings, and at drawn
times, mostly while DuckDB writes. Its home then is what a `kill -9` would leave, because the system has taken over what
a process wrote. The same command runs in a copy, `--jobs` side by side; its tables and published files are compared
with those of the stopped run, and the states of the home's runs with those in Prefect. Moments that left equal homes
are tried once. `--moments 120` tries that many, drawn from all. Prints a table by stage.

`--kills`: runs get `kill -9` at one of the next changes of files, or after a drawn time. The next run continues in the
same home and may be killed too. Once a run ends by itself, the same is compared, and the next chain of kills begins in
an empty home. Prints kills by stage.

Exit status: 0 if all ended like the undisturbed run, else 1.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.reliability.crashes import commands, prefect_server, recoveries
from benchmarks.reliability.crashes.commands import FLOWS
from benchmarks.reliability.crashes.prefect_server import OwnServer
from benchmarks.reliability.crashes.snapshots import Store


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", help="all, or how many of them")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--flow", choices=FLOWS, default="backfill")
    parser.add_argument("--models", help="instead of the flow's own")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--folder", type=Path, help="folder of the homes; by default a temporary one")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.models:
        FLOWS[options.flow] = replace(FLOWS[options.flow], models=options.models)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # stops the servers too
    with tempfile.TemporaryDirectory(dir=options.folder, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        os.environ |= {"PREFECT_HOME": str(folder / "prefect"), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
        server = OwnServer(folder / "prefect")
        try:
            commands.preload_modules()
            server.wait_ready()
            if options.moments is None:
                generator = random.Random(options.seed)
                return int(not recoveries.kill_chains(options.flow, options.kills, folder / "runs", server, generator))
            return _try_moments(options, folder, server)
        finally:
            server.stop()


def _try_moments(options: argparse.Namespace, folder: Path, server: OwnServer) -> int:
    """Recover the homes that kills of one run would leave; returns the exit status."""
    store, began = Store(folder / "snapshots"), time.monotonic()
    run = recoveries.stop_run(options.flow, folder / "stopped", store, server.url, options.seed)
    print(
        f"{len(run.moments)} moments in {time.monotonic() - began:.0f} s, {len(run.homes)} different homes of up to "
        f"{store.largest_bytes / 1e6:.1f} MB; stored {store.stored_bytes / 1e6:.0f} MB",
        flush=True,
    )
    server.stop()
    wanted = len(run.homes) if options.moments == "all" else min(int(options.moments), len(run.homes))
    homes = random.Random(options.seed).sample(list(run.homes.values()), wanted)
    servers = prefect_server.start_copies(min(options.jobs, wanted), folder / "prefect", folder)
    try:
        results = recoveries.recover_homes(options.flow, run, homes, store, servers, folder)
    finally:
        for one in servers:
            one.stop()
    for result in filter(recoveries.is_wrong, results.values()):
        print(result["log"], {name: result[name] for name in result if name != "log"}, sep="\n")
    print(*recoveries.format_table(options.flow, run, results), "", sep="\n")
    wrong = sum(map(recoveries.is_wrong, results.values()))
    cpu, wall = (sum(result[clock] for result in results.values()) / len(results) for clock in ("cpu", "wall"))
    unrecorded = sum(result.get("state") == recoveries.NOT_RECORDED for result in results.values())
    print(
        f"{len(results)} of {len(run.homes)} homes recovered, {wrong} of them not to equal rows, bytes and states; "
        f"{unrecorded} had no row of the killed run; each took {cpu:.1f} s of CPU time, {wall:.1f} s wall; "
        f"{time.monotonic() - began:.0f} s in all on {len(servers)} jobs"
    )
    return int(wrong > 0)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # otherwise DuckDB's binding reports the types that were loaded for the forks as leaked
