"""What the evaluate stage takes, in this process and with its calls on workers, and whether the tables are the same.

    python -m benchmarks.judging --set demo.users=20000 demo.items=3000 demo.likes=1000000
    python -m benchmarks.judging --dataset ml-1m --source ratings.csv --workers 2

CPU seconds of this process and its workers, of the evaluation of all models under both protocols, `--times` times one after
the other; the first has what a process does once: its modules, its kernels and the check of every file. The digest is of all rows of
the evaluation's tables. Fits are kept under `--home`, where one is given, and are not made a second time.
"""

import argparse
import hashlib
import tempfile
import time
from pathlib import Path

from benchmarks.cluster_calls import processor_seconds
from flows.parameters import Backfill
from flows.settings import RunSettings, resolve
from models.catalogue import MODELS
from tasks.binarize import binarize
from tasks.cluster import ClusterSettings, open_executor
from tasks.demo.story import make_demo
from tasks.evaluate import evaluate
from tasks.evaluate.tables import OF_LEAVE_ONE_OUT, OF_PROTOCOL
from tasks.ingest import ingest
from tasks.split import split
from tasks.stores import warehouse
from tasks.stores.home import Home
from tasks.train import fitted

RUN = "judging"  # the one run's name, so that no earlier evaluation is taken
PROTOCOLS = ["strong_generalization", "leave_one_out"]
SHORT = {"random_graph": {"iterations": 10}, "wmf": {"iterations": 3}, "paired_symbols": {"iterations": 10}}


def prepared(run: RunSettings, models: list[str]) -> dict[str, tuple[str, dict[str, str]]]:
    """By protocol the digest of its matrices, and those of the fits."""
    home = run.home
    sources = make_demo(home, run.demo, run.seed) if run.is_demo else list(run.sources)
    ingest(home, run.dataset, sources, RUN, run.ingest, replace=run.is_demo)
    binarize(home, run.binarize, RUN)
    numbers = run.dataset.id_order == "number"
    digests = split(home, run.split, RUN, protocols=PROTOCOLS, seed=run.seed, ids_are_numbers=numbers).digests
    found = {}
    for protocol in PROTOCOLS:
        fits = {
            name: fitted(home, digests[protocol], name, MODELS[name].Settings(**SHORT.get(name, {})), run.seed).digest
            for name in models
        }
        found[protocol] = digests[protocol], fits
    return found


def tables(home: Home) -> str:
    """The digest of every row that the evaluation left."""
    with warehouse.connect(home, read_only=True) as connection:
        rows = [
            connection.execute(f"select * from evaluation.{table} where run_id = ? order by all", [RUN]).fetchall()
            for table in (*OF_PROTOCOL, *OF_LEAVE_ONE_OUT)
        ]
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.judging", description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="demo")
    parser.add_argument("--source", nargs="+", default=[])
    parser.add_argument("--set", nargs="+", default=[], dest="settings")
    parser.add_argument("--models", default="popularity,random_graph,paired_symbols,wmf,mrf_dense")
    parser.add_argument("--workers", type=int, default=None, help="of a cluster on this machine; by default none")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--home", default=None, help="a folder that is kept; by default one that goes at the end")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = str(Path(given.home or folder).resolve())
        settings = dict(one.split("=", 1) for one in given.settings)
        run = resolve(Backfill(dataset=given.dataset, source=given.source, home=root, settings=settings))
        of_protocols = prepared(run, given.models.split(","))
        print("| | CPU s | wall s | digest of the tables |\n|---|---|---|---|", flush=True)
        with open_executor(ClusterSettings(workers=given.workers), run.home) as executor:
            for number in range(1, given.times + 1):
                wall, processor = time.perf_counter(), processor_seconds()
                for protocol, (digest, fits) in of_protocols.items():
                    evaluate(run.home, RUN, protocol, digest, fits, executor)
                wall, processor = time.perf_counter() - wall, processor_seconds() - processor
                print(f"| time {number} | {processor:.2f} | {wall:.2f} | {tables(run.home)} |", flush=True)


if __name__ == "__main__":
    main()
