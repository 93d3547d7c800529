"""The recovery of runs that are killed.

A run is stopped at each of its moments, and the same command runs again from each of the homes that it would have left;
or a command gets `kill -9` again and again in one home, until it ends by itself.
"""

import json
import math
import os
import random
import shutil
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.reliability.crashes import commands, moments, processes
from benchmarks.reliability.crashes.commands import FLOWS, HOME
from benchmarks.reliability.crashes.moments import Moment
from benchmarks.reliability.crashes.processes import SECONDS, Server, reporting_to, run
from benchmarks.reliability.crashes.snapshots import Snapshot, Store
from oneclass import data_contracts

NONE_YET = "before its row"  # the home knows nothing yet of the run that was killed


class Stopped(NamedTuple):
    """A run that was stopped at its moments.

    Attributes:
        moments: in their order, each with the digest of the home then.
        homes: by their digests.
        expected: what the run left.
        run_id: its own.
    """

    moments: list[tuple[Moment, str]]
    homes: dict[str, Snapshot]
    expected: dict[str, str]
    run_id: str


def stopped(flow: str, folder: Path, store: Store, url: str, seed: int) -> Stopped:
    """Run the flow's command, stopped at each of its moments.

    Raises:
        SystemExit: it fails.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    commands.before(flow, folder, lambda change: run(flow, folder, url, change=change))
    telling, going_on = os.pipe(), os.pipe()

    def work() -> int:
        os.close(telling[0])
        os.close(going_on[1])
        moments.tell_all(folder / HOME, telling[1], going_on[0])
        with reporting_to(url):
            return FLOWS[flow].main()

    process = commands.forked(folder, work, folder / "log")
    os.close(telling[1])
    os.close(going_on[0])
    found, homes = [], {}

    def take(moment: Moment) -> None:
        snapshot = store.take(folder / HOME)
        if moment.kind != "drawn" or snapshot.digest not in homes:
            found.append((moment, snapshot.digest))
            homes.setdefault(snapshot.digest, snapshot)

    status, _ = moments.watch(process, telling[0], going_on[1], take, random.Random(seed))
    if status:
        raise SystemExit(f"{(folder / 'log').read_text()[-3000:]}\nthe run that was stopped: status {status}")
    run_id = list(commands.runs_of(folder / HOME / FLOWS[flow].dataset))[-1]
    return Stopped(found, homes, commands.left(folder, flow), run_id)


def recovered(
    flow: str,
    of: Stopped,
    homes: Sequence[Snapshot],
    store: Store,
    beside: Sequence[processes.Server],
    at: Path,
    until: float = math.inf,
) -> dict[str, dict[str, Any]]:
    """The flow's command again in each of some homes, one home at a time beside each server: what came of it, by the
    home's digest.

    Args:
        at: a folder for the homes.
        until: no more are begun after this time of `time.monotonic`.
    """
    free, at_work, results = list(enumerate(beside)), {}, {}
    waiting, began = list(homes), time.monotonic()
    while at_work or (waiting and time.monotonic() < until):
        while free and waiting and time.monotonic() < until:
            slot, snapshot = free.pop(), waiting.pop()
            process, folder = _begin(flow, of, snapshot, store, slot[1], at / f"at-{slot[0]}")
            at_work[process] = slot, snapshot, folder, time.monotonic()
        process, status, usage = os.wait4(-1, 0)
        if process not in at_work:
            raise SystemExit("a Prefect server has ended by itself")
        slot, snapshot, folder, since = at_work.pop(process)
        free.append(slot)
        result = json.loads((folder / "result").read_text()) if status == 0 else {"failed": f"wait status {status}"}
        result |= {"cpu": usage.ru_utime + usage.ru_stime, "wall": time.monotonic() - since}
        results[snapshot.digest] = result | {"log": (folder / "log").read_text(errors="replace")[-3000:]}
        if len(results) % 20 == 0 or differs(result):
            wrong = [result[name] for name in ("failed", "differing", "untrue") if result.get(name)]
            print(f"{len(results)} of {len(homes)} recovered, {time.monotonic() - began:.0f} s", *wrong, flush=True)
    return results


def _begin(
    flow: str, of: Stopped, snapshot: Snapshot, store: Store, server: processes.Server, folder: Path
) -> tuple[int, Path]:
    """Begin the recovery of one home, in a process of its own; its id, and the folder that `result` will be in."""
    folder.mkdir(exist_ok=True)
    for name in ("result", "log"):
        (folder / name).unlink(missing_ok=True)

    def work() -> int:
        signal.alarm(SECONDS)
        store.put(snapshot, folder / HOME)
        (folder / "result").write_text(json.dumps(_recover(flow, of, folder, server)))
        return 0

    return commands.forked(folder, work, folder / "log"), folder


def differs(result: dict[str, Any]) -> bool:
    """Whether a recovery did not come to equal rows and bytes and the true states of its runs."""
    return bool(result.get("failed") or result.get("differing") or result.get("untrue"))


def _recover(flow: str, of: Stopped, folder: Path, server: processes.Server) -> dict[str, Any]:
    """The command again in the home below a folder, in this process; how what it left differs, and which states are
    untrue that Prefect shows of the home's runs.
    """
    home = folder / HOME / FLOWS[flow].dataset
    known = commands.runs_of(home)
    for run_id, state in known.items():  # the server knows how they ended; it did not, where they were killed now:
        if run_id == of.run_id or state != "completed":
            processes.ask(f"{server.url}/flow_runs/{run_id}/set_state", {"state": {"type": "RUNNING"}, "force": True})
    with reporting_to(server.url):
        status = FLOWS[flow].main()
    if status:
        return {"failed": f"status {status}"}
    found = commands.left(folder, flow)
    return {
        "differing": [name for name in of.expected if found[name] != of.expected[name]],
        "untrue": untrue(home, server),
        "state": known.get(of.run_id, NONE_YET),
    }


def untrue(home: Path, server: processes.Server) -> list[str]:
    """The runs that a data set's folder knows to have ended otherwise than the server shows."""
    shown = server.states()
    return [
        f"{state}, shown as {shown.get(run_id)}"
        for run_id, state in commands.runs_of(home).items()
        if shown.get(run_id) != state.upper()
    ]


def table(flow: str, run: Stopped, results: dict[str, dict[str, Any]]) -> list[str]:
    """Lines of a table: by stage, how many moments of each kind there were, and of those that were tried, how many
    ended with equal rows and bytes and true states.
    """
    rows: dict[str, Counter] = defaultdict(Counter)
    for moment, digest in run.moments:
        row = rows[moment.stage]
        row[moment.kind] += 1
        if digest in results:
            row["tried"] += 1
            row["equal"] += not differs(results[digest])
    counts = ("change", "commit", "drawn", "tried", "equal")
    lines = [
        (
            f"| `{flow}`, at work | changes of files | commits | within writes | moments tried | ended with equal rows "
            "and bytes |"
        ),
        "|---|---|---|---|---|---|",
    ]
    lines += [f"| {stage} | " + " | ".join(f"{row[count]}" for count in counts) + " |" for stage, row in rows.items()]
    total = sum(rows.values(), Counter())
    return [*lines, "| all | " + " | ".join(f"{total[count]}" for count in counts) + " |"]


BEYOND = 1.3  # a moment is drawn from so many times the changes, or the time, that a run left alone takes
STAGES = (*data_contracts.STAGES, "report", "refit")


def chains(flow: str, wanted: int, folder: Path, server: Server, drawn: random.Random) -> bool:
    """Chains of kills, until there were enough; whether all ended with equal rows and bytes, and true states in
    Prefect.
    """
    kills, ended, lost = Counter(), Counter(), 0
    _start_flow(flow, folder, server)
    began = time.monotonic()
    if run(flow, folder, server.url):
        print((folder / "log").read_text()[-3000:])
        return False
    ends = int(BEYOND * int((folder / "changes").read_text())), BEYOND * (time.monotonic() - began)
    print(f"a run left alone: {ends[0] / BEYOND:.0f} changes of files, {ends[1] / BEYOND:.1f} s", flush=True)
    expected = commands.left(folder, flow)
    while kills.total() < wanted:
        before, known = kills.total(), set(server.states())
        found = _chain(flow, folder, server, drawn, ends, kills)
        if found is not None and kills.total() == before:
            continue  # it was never killed
        differing = [name for name in expected if found is not None and found[name] != expected[name]]
        home = folder / HOME / FLOWS[flow].dataset
        differing += untrue(home, server)
        lost += len(server.states().keys() - known - commands.runs_of(home).keys())
        ended["failed" if found is None else "equal" if not differing else "other"] += 1
        print(f"{kills.total()} kills, {dict(ended)}", *differing, flush=True)
    for (how, stage), count in sorted(kills.items()):
        print(f"{how:22} {stage:24} {count:5}")
    print(
        f"{kills.total()} kills in {ended.total()} chains; ended with equal rows and bytes, and the states in Prefect "
        f"that the home knows: {ended['equal']}; killed before the home knew of them: {lost}"
    )
    return ended["equal"] == ended.total()


def _start_flow(flow: str, folder: Path, server: Server) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    commands.before(flow, folder, lambda change: run(flow, folder, server.url, change=change))


def _chain(
    flow: str, folder: Path, server: Server, drawn: random.Random, ends: tuple[int, float], kills: Counter
) -> dict[str, str] | None:
    """Kills in one home until a run ends; what that left, or None where a run failed by itself.

    Args:
        ends: the last change and the last second that are drawn.
    """
    _start_flow(flow, folder, server)
    while True:
        (folder / "log").unlink(missing_ok=True)
        by_time = drawn.random() < 0.5
        moment = {"seconds": drawn.uniform(0.2, ends[1])} if by_time else {"change": drawn.randint(1, ends[0])}
        status = run(flow, folder, server.url, **moment)
        if status == 0:
            return commands.left(folder, flow)
        said = (folder / "log").read_bytes()
        if status != -signal.SIGKILL:
            print(said.decode(errors="replace")[-3000:], f"status {status}", sep="\n", flush=True)
            return None
        kills["at a drawn time" if by_time else "at a change of files", _stage_of(said)] += 1


def _stage_of(said: bytes) -> str:
    """The stage that a log's last lines tell of."""
    done = [word for word in STAGES if f"{word}: done in".encode() in said]
    return f"after {done[-1]}" if done else "before ingest was done"
