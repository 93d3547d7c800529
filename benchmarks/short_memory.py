"""Memory that is short: what a run says that gets no more, which models it goes on without, and what it gives once it has.

    python -m benchmarks.short_memory [--items 2500] [--megabytes 80 160 ...] [--stages ingest ... --more 72] [--memory 256MB ...]

A demo run gets a limit on the memory of its own (RLIMIT_DATA, Linux): from its first stage on so many megabytes more than
it has then, rising from row to row; or, stage by stage, `--more` megabytes from when that stage begins. `--memory` gives
DuckDB alone so much. Then the same command runs again without a limit. A row names the task that failed, the last line that
the run said of it, the models that it went on without, and whether the second run's recommendations and evaluation have the
bytes of a run that was never short. One model, mrf_dense, holds items x items arrays.
"""

import argparse
import re
import resource
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.shortage import STAGES, Begins, backfill, digests, server

SMALL = ["--set", "train.tune=off", "demo.users=800", "demo.likes=20000"]
RUN = ["--threads", "1", "--models", "popularity,slim,mrf_dense", *SMALL]
LEFT_OUT = re.compile(r"^(\w+) failed and was left out", re.MULTILINE)


def short_from(stage: str, more: int) -> Begins:
    """Let the process have no more than so many bytes beside what it has when the first task of a stage begins."""

    def begins(name: str, number: int) -> None:
        if (name, number) == (stage, 1):
            status = Path("/proc/self/status").read_text()
            has = 1024 * int(re.search(r"VmData:\s+(\d+)", status)[1])
            resource.setrlimit(resource.RLIMIT_DATA, (has + more, resource.RLIM_INFINITY))

    return begins


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.short_memory", description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, nargs="*", default=[80, 160, 192, 224, 288, 480])
    parser.add_argument("--stages", nargs="*", choices=STAGES, default=[stage for stage in STAGES if stage != "tune"])
    parser.add_argument("--more", type=int, nargs="*", default=[72], help="megabytes that a stage may have")
    parser.add_argument("--memory", nargs="*", default=["256MB"], help="for DuckDB alone")
    parser.add_argument("--items", type=int, default=2500, help="of the demo; mrf_dense takes 8 bytes for each pair")
    given = parser.parse_args()
    run = [*RUN, f"demo.items={given.items}"]
    healed = tried = 0
    with TemporaryDirectory() as name:
        folder = Path(name)
        log, again_log = folder / "log", folder / "again"
        with server(folder / "prefect"):
            for home in ("first", "clean"):  # the first compiles kernels
                ended = backfill(folder / home, run, log)
                assert ended.status == 0, log.read_text()[-3000:]
            wanted = digests(folder / "clean")
            print(
                "| memory | exit | failed at | said | without | again | bytes |\n|---|---|---|---|---|---|---|",
                flush=True,
            )
            aims = [
                (f"{more} MB more from {STAGES[0]} on", [], short_from(STAGES[0], more << 20))
                for more in given.megabytes
            ]
            for stage in given.stages:
                aims += [(f"{more} MB more from {stage} on", [], short_from(stage, more << 20)) for more in given.more]
            aims += [(f"--memory {size}", ["--memory", size], None) for size in given.memory]
            for number, (what, words, begins) in enumerate(aims):
                home = folder / f"home-{number}"
                first = backfill(home, [*run, *words], log, begins)
                without = ", ".join(LEFT_OUT.findall(log.read_text(errors="replace")))
                again = backfill(home, run, again_log)
                same = again.status == 0 and digests(home) == wanted
                said = first.said.replace(str(folder), "")[:160]
                cells = (
                    what,
                    first.status,
                    first.failed_at,
                    said,
                    without,
                    again.status,
                    "equal" if same else "DIFFERENT",
                )
                print(f"| {' | '.join(map(str, cells))} |", flush=True)
                if not same:
                    print(log.read_text()[-2000:], again_log.read_text()[-3000:], sep="\n----\n")
                healed, tried = healed + same, tried + 1
    print(f"\n{healed} of {tried} gave the bytes of a run that was never short.")
    return int(healed < tried)


if __name__ == "__main__":
    raise SystemExit(main())
