"""Recover the homes of killed runs.

A run is stopped at each of its moments, and the same command runs again from each home that a kill would have left; or
a command gets `kill -9` again and again in one home, until it ends by itself.
"""

import json
import os
import random
import shutil
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.reliability.crashes import commands, moments
from benchmarks.reliability.crashes.commands import FLOWS, HOME
from benchmarks.reliability.crashes.moments import Moment
from benchmarks.reliability.crashes.prefect_server import Server, use_server
from benchmarks.reliability.crashes.processes import MAX_RUN_SECONDS, run_flow
from benchmarks.reliability.crashes.snapshots import Snapshot, Store
from oneclass import data_contracts

NOT_RECORDED = "before its row"  # the home has no row of the killed run
LOG_CHARACTERS = 3000  # of a log's end that are printed
OVERSHOOT = 1.3  # moments are drawn from so many times the changes, or the time, of an undisturbed run
STAGES = (*data_contracts.STAGES, "report", "refit")
Result = dict[str, Any]  # of a recovery


class StoppedRun(NamedTuple):
    """A run that was stopped at its moments.

    Attributes:
        moments: in their order, each with the digest of the home then.
        homes: by their digests.
        expected: digests of what the run left in the end.
    """

    moments: list[tuple[Moment, str]]
    homes: dict[str, Snapshot]
    expected: dict[str, str]
    run_id: str


def stop_run(flow: str, folder: Path, store: Store, url: str, seed: int) -> StoppedRun:
    """Run the flow's command, stopped at each of its moments.

    Raises:
        SystemExit: it fails.
    """
    _prepare_folder(flow, folder, url)
    reports, permits = os.pipe(), os.pipe()

    def run_command() -> int:
        os.close(reports[0])
        os.close(permits[1])
        moments.report_moments(folder / HOME, reports[1], permits[0])
        with use_server(url):
            return FLOWS[flow].main()

    process = commands.fork_process(folder, run_command, folder / "log")
    os.close(reports[1])
    os.close(permits[0])
    stops, homes = [], {}

    def take_snapshot(moment: Moment) -> None:
        snapshot = store.take(folder / HOME)
        if moment.kind != "drawn" or snapshot.digest not in homes:
            stops.append((moment, snapshot.digest))
            homes.setdefault(snapshot.digest, snapshot)

    status = moments.stop_at_moments(process, reports[0], permits[1], take_snapshot, random.Random(seed))
    if status:
        raise SystemExit(f"{_read_log_end(folder)}\nthe stopped run ended with status {status}")
    run_id = list(commands.read_run_states(folder / HOME / FLOWS[flow].dataset))[-1]
    return StoppedRun(stops, homes, commands.digest_flow(flow, folder), run_id)


def recover_homes(
    flow: str,
    run: StoppedRun,
    homes: Sequence[Snapshot],
    store: Store,
    servers: Sequence[Server],
    folder: Path,
) -> dict[str, Result]:
    """Run the flow's command in each of some homes, one at a time beside each server.

    Args:
        folder: for the homes.

    Returns:
        The result of each recovery by the home's digest.
    """
    free, running, results = list(enumerate(servers)), {}, {}
    waiting, began = list(homes), time.monotonic()
    while running or waiting:
        while free and waiting:
            (slot, server), snapshot = free.pop(), waiting.pop()
            home_folder = folder / f"at-{slot}"
            process = _start_recovery(flow, run, snapshot, store, server, home_folder)
            running[process] = (slot, server), snapshot, home_folder, time.monotonic()
        process, status, usage = os.wait4(-1, 0)
        if process not in running:
            raise SystemExit("a Prefect server has ended by itself")
        slot, snapshot, home_folder, start = running.pop(process)
        free.append(slot)
        result = (
            json.loads((home_folder / "result").read_text()) if status == 0 else {"failed": f"wait status {status}"}
        )
        result |= {"cpu": usage.ru_utime + usage.ru_stime, "wall": time.monotonic() - start}
        results[snapshot.digest] = result | {"log": _read_log_end(home_folder)}
        if len(results) % 20 == 0 or is_wrong(result):
            wrong = [result[name] for name in ("failed", "differing", "wrong states") if result.get(name)]
            print(f"{len(results)} of {len(homes)} recovered, {time.monotonic() - began:.0f} s", *wrong, flush=True)
    return results


def is_wrong(result: Result) -> bool:
    """Tell whether a recovery failed, or left other rows, bytes or states of its runs."""
    return bool(result.get("failed") or result.get("differing") or result.get("wrong states"))


def _start_recovery(flow: str, run: StoppedRun, snapshot: Snapshot, store: Store, server: Server, folder: Path) -> int:
    """Start a process that recovers one home and writes `result` into the folder; returns its id."""
    folder.mkdir(exist_ok=True)
    for name in ("result", "log"):
        (folder / name).unlink(missing_ok=True)

    def recover() -> int:
        signal.alarm(MAX_RUN_SECONDS)
        store.put(snapshot, folder / HOME)
        (folder / "result").write_text(json.dumps(_recover_home(flow, run, folder, server)))
        return 0

    return commands.fork_process(folder, recover, folder / "log")


def _recover_home(flow: str, run: StoppedRun, folder: Path, server: Server) -> Result:
    """Run the command in the home below a folder, and compare what it left with the undisturbed run."""
    home = folder / HOME / FLOWS[flow].dataset
    states = commands.read_run_states(home)
    for run_id, state in states.items():  # the server believes that killed runs are running
        if run_id == run.run_id or state != "completed":
            server.post(f"flow_runs/{run_id}/set_state", {"state": {"type": "RUNNING"}, "force": True})
    with use_server(server.url):
        status = FLOWS[flow].main()
    if status:
        return {"failed": f"status {status}"}
    digests = commands.digest_flow(flow, folder)
    return {
        "differing": [name for name in run.expected if digests[name] != run.expected[name]],
        "wrong states": list_wrong_states(home, server),
        "state": states.get(run.run_id, NOT_RECORDED),
    }


def list_wrong_states(home: Path, server: Server) -> list[str]:
    """List the runs of a data set's folder that the server shows in another state."""
    shown = server.list_states()
    return [
        f"{state}, shown as {shown.get(run_id)}"
        for run_id, state in commands.read_run_states(home).items()
        if shown.get(run_id) != state.upper()
    ]


def format_table(flow: str, run: StoppedRun, results: dict[str, Result]) -> list[str]:
    """Format a table by stage: the moments of each kind, those tried, and those that ended equal."""
    rows: dict[str, Counter] = defaultdict(Counter)
    for moment, digest in run.moments:
        row = rows[moment.stage]
        row[moment.kind] += 1
        if digest in results:
            row["tried"] += 1
            row["equal"] += not is_wrong(results[digest])
    rows["all"] = sum(rows.values(), Counter())
    counts = ("change", "commit", "drawn", "tried", "equal")
    columns = ("changes of files", "commits", "within writes", "moments tried", "ended with equal rows and bytes")
    return [
        f"| `{flow}`, at work | {' | '.join(columns)} |",
        "|---|---|---|---|---|---|",
        *(f"| {stage} | " + " | ".join(f"{row[count]}" for count in counts) + " |" for stage, row in rows.items()),
    ]


def kill_chains(flow: str, wanted: int, folder: Path, server: Server, generator: random.Random) -> bool:
    """Run chains of kills until there are enough; returns whether all ended with equal rows, bytes and states."""
    kills, outcomes, unrecorded = Counter(), Counter(), 0
    _prepare_folder(flow, folder, server.url)
    began = time.monotonic()
    if run_flow(flow, folder, server.url):
        print(_read_log_end(folder))
        return False
    changes, seconds = int((folder / "changes").read_text()), time.monotonic() - began
    print(f"an undisturbed run: {changes} changes of files, {seconds:.1f} s", flush=True)
    expected, home = commands.digest_flow(flow, folder), folder / HOME / FLOWS[flow].dataset
    while kills.total() < wanted:
        kills_before, known = kills.total(), set(server.list_states())
        digests = _kill_chain(flow, folder, server, generator, (changes, seconds), kills)
        if digests is not None and kills.total() == kills_before:
            continue  # never killed
        differing = [name for name in expected if digests is not None and digests[name] != expected[name]]
        differing += list_wrong_states(home, server)
        unrecorded += len(server.list_states().keys() - known - commands.read_run_states(home).keys())
        outcomes["failed" if digests is None else "other" if differing else "equal"] += 1
        print(f"{kills.total()} kills, {dict(outcomes)}", *differing, flush=True)
    for (how, stage), count in sorted(kills.items()):
        print(f"{how:22} {stage:24} {count:5}")
    print(
        f"{kills.total()} kills in {outcomes.total()} chains; ended with equal rows, bytes and states in Prefect: "
        f"{outcomes['equal']}; killed before the home had their row: {unrecorded}"
    )
    return outcomes["equal"] == outcomes.total()


def _prepare_folder(flow: str, folder: Path, url: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    commands.prepare_home(flow, folder, lambda change: run_flow(flow, folder, url, change=change))


def _kill_chain(
    flow: str, folder: Path, server: Server, generator: random.Random, ends: tuple[int, float], kills: Counter
) -> dict[str, str] | None:
    """Kill runs in one home until one ends; returns the digests of what it left, or None if a run failed by itself.

    Args:
        ends: changes and seconds of an undisturbed run.
        kills: the kills are counted there.
    """
    _prepare_folder(flow, folder, server.url)
    while True:
        (folder / "log").unlink(missing_ok=True)
        by_time = generator.random() < 0.5
        if by_time:
            status = run_flow(flow, folder, server.url, seconds=generator.uniform(0.2, OVERSHOOT * ends[1]))
        else:
            status = run_flow(flow, folder, server.url, change=generator.randint(1, int(OVERSHOOT * ends[0])))
        if status == 0:
            return commands.digest_flow(flow, folder)
        if status != -signal.SIGKILL:
            print(_read_log_end(folder), f"status {status}", sep="\n", flush=True)
            return None
        kills["at a drawn time" if by_time else "at a change of files", _find_stage(folder / "log")] += 1


def _find_stage(log: Path) -> str:
    """Find the last stage that is done by a log."""
    text = log.read_bytes()
    done = [stage for stage in STAGES if f"{stage}: done in".encode() in text]
    return f"after {done[-1]}" if done else "before ingest was done"


def _read_log_end(folder: Path) -> str:
    return (folder / "log").read_text(errors="replace")[-LOG_CHARACTERS:]
