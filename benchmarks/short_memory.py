"""Memory that is short: what a run says that gets no more, which models it goes on without, and what it gives once it has.

    python -m benchmarks.short_memory [--items 2500] [--megabytes 80 160 ...] [--stages ingest ... --more 72] [--memory 256MB ...]
    python -m benchmarks.short_memory --group 1500 800 ... [--items 2500]

A demo run gets a limit on the memory of its own (RLIMIT_DATA, Linux): from its first stage on so many megabytes more than
it has then, rising from row to row; or, stage by stage, `--more` megabytes from when that stage begins. `--memory` gives
DuckDB alone so much. Then the same command runs again without a limit. A row names the task that failed, the last line that
the run said of it, the models that it went on without, and whether the second run's recommendations and evaluation have the
bytes of a run that was never short. One model, mrf_dense, holds items x items arrays.

`--group` tries nothing of that: it gives a whole run, in a process that begins anew, a control group of so many megabytes,
as a container has one, which the kernel keeps to its limit with SIGKILL (Linux, root only). A row has what the project
saw and gave DuckDB, and the most that the group had, what files have in the cache included. `-14` ran for too long.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.shortage import STAGES, Begins, Ended, backfill, command, digests, groups, server

SMALL = ["--set", "train.tune=off", "demo.users=800", "demo.likes=20000"]
RUN = ["--threads", "1", "--models", "popularity,slim,mrf_dense", *SMALL]
SEEN = """
from tasks.stores import allowance
from tasks.stores.home import Limits

print(*(f"{count / 1e6:.0f}" for count in (allowance.memory(), Limits().memory)))
"""
LEFT_OUT = re.compile(r"^(\w+) failed and was left out", re.MULTILINE)


def short_from(stage: str, more: int) -> Begins:
    """Let the process have no more than so many bytes beside what it has when the first task of a stage begins."""

    def begins(name: str, number: int) -> None:
        if (name, number) == (stage, 1):
            status = Path("/proc/self/status").read_text()
            has = 1024 * int(re.search(r"VmData:\s+(\d+)", status)[1])
            resource.setrlimit(resource.RLIMIT_DATA, (has + more, resource.RLIM_INFINITY))

    return begins


def rows_of_limits(given: argparse.Namespace, run: list[str], folder: Path, wanted: list[str]) -> list[bool]:
    """A row for each limit of the process's own; whether the second run gave the bytes that were wanted."""
    print("| memory | exit | failed at | said | without | again | bytes |\n|---|---|---|---|---|---|---|", flush=True)
    first = [(f"{more} MB more from {STAGES[0]} on", [], short_from(STAGES[0], more << 20)) for more in given.megabytes]
    later = [
        (f"{more} MB more from {stage} on", [], short_from(stage, more << 20))
        for stage in given.stages
        for more in given.more
    ]
    of_duckdb = [(f"--memory {size}", ["--memory", size], None) for size in given.memory]
    healed = []
    for number, (what, words, begins) in enumerate([*first, *later, *of_duckdb]):
        home = folder / f"home-{number}"
        ended = backfill(home, [*run, *words], folder / "log", begins)
        again = backfill(home, run, folder / "again")
        healed.append(_row([what], ended, again, folder, home, wanted))
    return healed


def rows_of_groups(megabytes: list[int], run: list[str], folder: Path, wanted: list[str]) -> list[bool]:
    """The same for each control group."""
    print("| limit, MB | seen, MB | DuckDB's, MB | most, MB | exit | failed at | said | without | again | bytes |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    healed = []
    for number, size in enumerate(megabytes):
        home = folder / f"group-{number}"
        with groups.group(f"oneclass-{os.getpid()}-{number}", size * 10**6) as group:
            seen = subprocess.run([sys.executable, "-c", SEEN], preexec_fn=group.enter, capture_output=True, check=True)
            ended = command(home, run, folder / "log", group.enter)
            cells = [size, *seen.stdout.decode().split(), f"{group.most() / 1e6:.0f}"]
        healed.append(_row(cells, ended, command(home, run, folder / "again"), folder, home, wanted))
    return healed


def _row(cells: list, ended: Ended, again: Ended, folder: Path, home: Path, wanted: list[str]) -> bool:
    """Print how a run ended that was short, and the one after it; whether that gave the bytes that were wanted."""
    log, again_log = ((folder / name).read_text(errors="replace") for name in ("log", "again"))
    same = again.status == 0 and digests(home) == wanted
    said = ended.said.replace(str(folder), "")[:240]
    without = ", ".join(sorted(set(LEFT_OUT.findall(log))))
    cells = [*cells, ended.status, ended.failed_at, said, without, again.status, "equal" if same else "DIFFERENT"]
    print(f"| {' | '.join(map(str, cells))} |", flush=True)
    if not same:
        print(log[-2000:], again_log[-3000:], sep="\n----\n")
    return same


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.short_memory", description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, nargs="*", default=[80, 160, 192, 224, 288, 480])
    parser.add_argument("--stages", nargs="*", choices=STAGES, default=[stage for stage in STAGES if stage != "tune"])
    parser.add_argument("--more", type=int, nargs="*", default=[72], help="megabytes that a stage may have")
    parser.add_argument("--memory", nargs="*", default=["256MB"], help="for DuckDB alone")
    parser.add_argument(
        "--group", type=int, nargs="+", metavar="MEGABYTES", help="of control groups, instead of all that"
    )
    parser.add_argument("--items", type=int, default=2500, help="of the demo; mrf_dense takes 8 bytes for each pair")
    given = parser.parse_args()
    if given.group and os.geteuid() != 0:
        parser.error("--group: only root makes control groups; run it in a virtual machine of your own")
    run = [*RUN, f"demo.items={given.items}"]
    with TemporaryDirectory() as name, server(Path(name) / "prefect"):
        folder = Path(name)
        for home in ("first", "clean"):  # the first compiles kernels
            ended = backfill(folder / home, run, folder / "log")
            assert ended.status == 0, (folder / "log").read_text()[-3000:]
        wanted = digests(folder / "clean")
        if given.group:
            try:
                healed = rows_of_groups(given.group, run, folder, wanted)
            except groups.NoGroups as error:
                parser.error(f"--group: {error}")
        else:
            healed = rows_of_limits(given, run, folder, wanted)
    print(f"\n{sum(healed)} of {len(healed)} gave the bytes of a run that was never short.")
    return int(not all(healed))


if __name__ == "__main__":
    raise SystemExit(main())
