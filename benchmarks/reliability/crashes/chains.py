"""Runs that get `kill -9` again and again, in one home, until one comes to its end."""

import random
import shutil
import signal
import time
from collections import Counter
from pathlib import Path

from benchmarks.reliability.crashes import commands, recoveries
from benchmarks.reliability.crashes.commands import FLOWS, HOME
from benchmarks.reliability.crashes.processes import run
from benchmarks.reliability.crashes.servers import Server
from oneclass import data_contracts

BEYOND = 1.3  # a moment is drawn from so many times the changes, or the time, that a run left alone takes
STAGES = (*data_contracts.STAGES, "report", "refit")


def chains(flow: str, wanted: int, folder: Path, server: Server, drawn: random.Random) -> bool:
    """Chains of kills, until there were enough; whether all ended with equal rows and bytes, and true states in Prefect."""
    kills, ended, lost = Counter(), Counter(), 0
    _begin(flow, folder, server)
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
        differing += recoveries.untrue(home, server)
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


def _begin(flow: str, folder: Path, server: Server) -> None:
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
    _begin(flow, folder, server)
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
