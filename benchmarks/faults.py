"""Runs that are killed again and again, in processes of their own, until one comes to its end; what it leaves.

    python -m benchmarks.faults [--kills 100] [--seed 1] [--models popularity,mrf_dense,slim]
                                [--flow backfill|nightly|tuned|sweep]

`tuned` is a backfill that searches its models' settings (`train.tune=always`), `sweep` the refits of a report's figure.
A command on a small demo log, with a Prefect server beside it, gets `kill -9`: at one of its next changes to the file
system, of which one is drawn (files opened for writing, renamed, removed; folders and links made), or after a drawn
time, which also falls into DuckDB's own work. The next process goes on from what is there, and may be killed too. Once
a run ends well, its tables and published files are held against those of a run that was left alone, and the next chain
of kills begins in an empty home. Prints kills by the stage that they fell into, and chains that ended with equal rows
and bytes. Exit status: 0 where all did, else 1.
"""

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path

import duckdb

import sql

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "os.link", "os.truncate"}
SMALL = ["demo.users=150", "demo.items=60", "demo.likes=2500"]
SEARCHED = ["demo.users=900", "demo.items=60", "demo.likes=12000", "train.tune=always"]  # enough users to choose by
TABLES = (
    "raw.events",
    "raw.rejects",
    "curated.interactions",
    "splits.strong_generalization",
    "splits.leave_one_out",
    "diagnostics.degrees",
    "diagnostics.power_law_fits",
    "diagnostics.hidden_graph_ratios",
    "published.recommendations",
)
LATEST = {  # of the newest run, without the columns that no two runs have alike
    "evaluation.metrics": "run_id",
    "evaluation.comparisons": "run_id",
    "evaluation.beyond_accuracy": "run_id",
    "operations.model_settings": "run_id, origin, reason, searched_on, seconds",
}
OF_A_SWEEP = ("raw.events", "raw.rejects", "curated.interactions", "splits.strong_generalization")
FILES = ("recommendations.parquet", "evaluation.parquet", "evaluation.csv", "evaluation.md")
BEYOND = 1.3  # a moment is drawn from so many times the changes, or the time, that a run left alone takes
PORT = 4747


def kill_at(change: int, folder: Path) -> list[int]:
    """Have this process killed when it makes its n-th change below a folder; the changes counted, as the one entry."""
    counted = [0]

    def look(event: str, arguments: tuple) -> None:
        if event == "open":
            name, _, flags = arguments
            if not isinstance(name, str | bytes | os.PathLike) or not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return
        elif event not in CHANGES:
            return
        name = os.fsdecode(arguments[0]) if not isinstance(arguments[0], int) else ""
        if os.path.isabs(name) and not name.startswith(str(folder)):
            return
        counted[0] += 1
        if counted[0] == change:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)
    return counted


def run(home: Path, arguments: argparse.Namespace, log: Path, *, change: int = 0, seconds: float = 0) -> int:
    """One command in a process of its own; its exit status, or -9 where it was killed.

    Args:
        change, seconds: when to kill it; never where both are 0.
    """
    process = os.fork()
    if process == 0:
        os.setsid()
        with open(log, "ab") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        counted = kill_at(change, home)
        from flows import backfill, nightly_retrain, sweep

        of = ["--sweep", "mrf_sparse_density"] if arguments.flow == "sweep" else ["--models", arguments.models]
        words = ["--dataset", "demo", "--home", str(home), "--threads", "1", *of, "--set"]
        main = {"nightly": nightly_retrain.main, "sweep": sweep.main}.get(arguments.flow, backfill.main)
        status = main(words + (SEARCHED if arguments.flow == "tuned" else SMALL))
        log.with_name("changes").write_text(str(counted[0]))
        os._exit(status)
    deadline = time.monotonic() + (seconds or 600)
    while os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > deadline:
            os.kill(process, signal.SIGKILL)
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def left(home: Path, flow: str) -> dict[str, str]:
    """Digests of what a run leaves: the rows of each table, whatever their order, and each published file."""
    found, folder = {}, home / "demo"
    with duckdb.connect(str(folder / "warehouse.duckdb"), read_only=True) as connection:
        newest = connection.execute("select max_by(run_id, place) from operations.evaluated_runs").fetchone()[0]
        relations = {table: table for table in (OF_A_SWEEP if flow == "sweep" else TABLES)}
        if flow == "sweep":
            relations["evaluation.sweeps"] = "(select * exclude (swept_at, seconds) from evaluation.sweeps)"
        else:
            for table, but in LATEST.items():
                relations[table] = f"(select * exclude ({but}) from {table} where run_id = '{newest}')"
        for table, relation in relations.items():  # no Polars: its threads must not run where one forks
            asked = sql.statement("runs/table_digest", table=relation)
            found[table] = connection.execute(asked).fetchone()[0]
    for name in () if flow == "sweep" else FILES:
        found[name] = hashlib.sha256((folder / "published" / name).read_bytes()).hexdigest()
    half = [str(path) for path in folder.rglob("partial-*")]
    found["left half made"] = ", ".join(half)
    return found


def stage_of(said: bytes) -> str:
    """The stage that a log's last lines tell of."""
    stages = ("ingest", "binarize", "split", "diagnose", "tune", "train", "evaluate", "publish", "report", "refit")
    done = [word for word in stages if f"{word}: done in".encode() in said]
    return f"after {done[-1]}" if done else "before ingest was done"


def chain(
    arguments: argparse.Namespace, drawn: random.Random, folder: Path, ends: tuple[int, float], kills: Counter
) -> dict[str, str] | None:
    """Kills in one home until a run ends; what that left, or None where a run failed by itself.

    Args:
        ends: the last change and the last second that are drawn.
    """
    home, log = folder / "home", folder / "log"
    shutil.rmtree(home, ignore_errors=True)
    while True:
        log.unlink(missing_ok=True)
        by_time = drawn.random() < 0.5
        moment = {"seconds": drawn.uniform(0.2, ends[1])} if by_time else {"change": drawn.randint(1, ends[0])}
        status = run(home, arguments, log, **moment)
        if status == 0:
            return left(home, arguments.flow)
        if status != -signal.SIGKILL:
            print(log.read_text()[-3000:], f"status {status}", sep="\n", flush=True)
            return None
        kills["at a drawn time" if by_time else "at a change of files", stage_of(log.read_bytes())] += 1


def server(folder: Path) -> subprocess.Popen:
    """A Prefect server of its own, once it answers."""
    os.environ |= {"PREFECT_HOME": str(folder / "prefect"), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    command = [sys.executable, "-m", "prefect", "server", "start", "--port", str(PORT), "--no-ui"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.environ["PREFECT_API_URL"] = f"http://127.0.0.1:{PORT}/api"
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{os.environ['PREFECT_API_URL']}/health", timeout=1).close()
            return process
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"no Prefect server answers on port {PORT}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", default="popularity,mrf_dense,slim")
    parser.add_argument("--flow", choices=("backfill", "nightly", "tuned", "sweep"), default="backfill")
    arguments = parser.parse_args()
    drawn, kills, ended = random.Random(arguments.seed), Counter(), Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prefect = server(folder)
        import flows.sequence  # noqa: F401  (once, for all the processes that are forked from this one)

        try:
            for home in ("first", "alone"):  # the first compiles kernels
                began = time.monotonic()
                if run(folder / home, arguments, folder / "log"):
                    print((folder / "log").read_text()[-3000:])
                    return 1
            changes, seconds = int((folder / "changes").read_text()), time.monotonic() - began
            print(f"a run left alone: {changes} changes of files, {seconds:.1f} s", flush=True)
            ends = int(BEYOND * changes), BEYOND * seconds
            expected = left(folder / "alone", arguments.flow)
            while kills.total() < arguments.kills:
                before = kills.total()
                found = chain(arguments, drawn, folder, ends, kills)
                if found is not None and kills.total() == before:
                    continue  # it was never killed
                differing = [name for name in expected if found is not None and found[name] != expected[name]]
                ended["failed" if found is None else "equal" if not differing else "other"] += 1
                print(f"{kills.total()} kills, {dict(ended)}", *differing, flush=True)
        finally:
            prefect.terminate()
    for (how, stage), count in sorted(kills.items()):
        print(f"{how:22} {stage:24} {count:5}")
    print(f"{kills.total()} kills in {ended.total()} chains; ended with equal rows and bytes: {ended['equal']}")
    return int(ended["equal"] != ended.total())


if __name__ == "__main__":
    raise SystemExit(main())
