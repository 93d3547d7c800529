"""Stop a tiny run at each of its moments, copy its home and recover it (benchmarks/reliability/crashes)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.reliability.crashes.snapshots import Store

ROOT = Path(__file__).parents[2]


@pytest.fixture
def home(tmp_path):
    """A folder with what a home has: folders, a file under two names, links, one of them to nothing."""
    home = tmp_path / "home"
    (home / "publications" / "run").mkdir(parents=True)
    (home / "store").mkdir(mode=0o700)
    (home / "store" / "array").write_bytes(b"bits" * 1000)
    os.link(home / "store" / "array", home / "publications" / "run" / "array")
    (home / "published").symlink_to("publications/run")
    (home / "lost").symlink_to("nowhere")
    (home / "secret").write_text("")
    (home / "secret").chmod(0o600)
    return home


def test_a_copy_of_a_home_is_the_home(home, tmp_path):
    store = Store(tmp_path / "kept")
    taken = store.take(home)
    (home / "store" / "array").write_bytes(b"other")
    (home / "published").unlink()
    assert store.take(home).digest != taken.digest
    for place in (home, tmp_path / "elsewhere"):
        store.put(taken, place)
        assert store.take(place) == taken
        assert (place / "published").readlink() == Path("publications/run") and (place / "lost").is_symlink()
        assert (place / "published" / "array").read_bytes() == b"bits" * 1000
        assert (place / "published" / "array").stat().st_ino == (place / "store" / "array").stat().st_ino
        assert (place / "secret").stat().st_mode & 0o777 == 0o600


def test_what_is_written_shows_in_the_next_copy_however_soon(home, tmp_path):
    store, file = Store(tmp_path / "kept"), home / "store" / "array"
    digests = set()
    for number in range(200):  # within one tick of the file system's clock, and of one size
        with file.open("r+b") as stream:
            stream.write(b"%04d" % number)
        digests.add(store.take(home).digest)
    assert len(digests) == 200


STOPPED = """
import os, random, sys
from pathlib import Path
from benchmarks.reliability.crashes import moments, commands
from benchmarks.reliability.crashes.snapshots import Store
folder = Path(sys.argv[1])
home = folder / "home"
(home / "small").mkdir(parents=True)
store, seen, reports, permits = Store(folder / "kept"), [], os.pipe(), os.pipe()

def work():
    import duckdb
    os.close(reports[0])
    moments.report_moments(home, reports[1], permits[0])
    (home / "small" / "a").write_text("1")
    os.rename(home / "small" / "a", home / "small" / "b")
    with duckdb.connect("home/small/warehouse.duckdb") as connection:
        connection.execute("create table numbers as select 1 as number")
        connection.begin()
        connection.execute("insert into numbers values (2)")
        connection.commit()
    os.remove(home / "small" / "b")
    return 0

process = commands.fork_process(folder, work, folder / "log")
os.close(reports[1])
def take(moment):
    files = sorted(path.removeprefix("small/") for path, *_ in store.take(home).entries[1:])
    if moment.kind != "drawn":
        seen.append(f"{moment.event}: {' '.join(files)}")
status = moments.stop_at_moments(process, reports[0], permits[1], take, random.Random(1))
print(*seen, status, sep="\\n")
"""


def test_a_run_is_stopped_before_each_change_and_round_each_commit(tmp_path):
    command = [sys.executable, "-c", STOPPED, str(tmp_path)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert said.stdout.splitlines() == [
        "open: ",
        "os.rename: a",
        "after execute: b warehouse.duckdb warehouse.duckdb.wal",
        "before commit: b warehouse.duckdb warehouse.duckdb.wal",
        "after commit: b warehouse.duckdb warehouse.duckdb.wal",
        "before __exit__: b warehouse.duckdb warehouse.duckdb.wal",
        "after __exit__: b warehouse.duckdb",
        "os.remove: b warehouse.duckdb",
        "0",
    ], said.stderr


RECOVERED = """
import json, os, random, sys
from pathlib import Path
from benchmarks.reliability.crashes import commands, recoveries
from benchmarks.reliability.crashes.commands import FLOWS, Flow
from benchmarks.reliability.crashes.prefect_server import Server
from benchmarks.reliability.crashes.snapshots import Store
folder, server = Path(sys.argv[1]), Server(os.environ["PREFECT_API_URL"])
sizes = ("demo.users=60", "demo.items=30", "demo.likes=500", "train.tune=off")
FLOWS["tiny"] = Flow("backfill", models="popularity", words=("--protocols", "leave_one_out"), settings=sizes)
commands.preload_modules()
store = Store(folder / "kept")
run = recoveries.stop_run("tiny", folder / "stopped", store, server.url, seed=1)
kinds = {kind: [digest for moment, digest in run.moments if moment.kind == kind] for kind in ("change", "commit")}
change = random.Random(1).choice(kinds["change"])
wanted = {change, *random.Random(1).sample(sorted({*kinds["commit"]} - {change}), 4)}
results = recoveries.recover_homes("tiny", run, [run.homes[one] for one in wanted], store, [server], folder)
for result in filter(recoveries.is_wrong, results.values()):
    print(result, file=sys.stderr)
counts = [sum(map(recoveries.is_wrong, results.values())), len(results), *map(len, kinds.values())]
print(json.dumps(counts), flush=True)
os._exit(0)
"""


@pytest.mark.slow
def test_a_run_recovers_from_some_of_its_moments(prefect_server, tmp_path):
    command = [sys.executable, "-c", RECOVERED, str(tmp_path)]
    environment = {**os.environ, "PREFECT_API_URL": prefect_server}
    said = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    differing, tried, changes, commits = json.loads(said.stdout.splitlines()[-1])
    assert (differing, tried) == (0, 5), said.stderr
    assert changes > 100 and commits > 100
