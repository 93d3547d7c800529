"""Whole runs with the default models on logs of ever more items: status, minutes, memory, and each model's nDCG.

    python -m benchmarks.scale.catalogues --home DIR [--items 1000 10000 50000 195795] [--likes 9.45] [--at-most 1800]
        [--models A B ...] [--protocols A,B] [--set KEY=VALUE ...]

A log is made by the demo's generative story, with .85 users and `--likes` likes for each item, by default as many as a
shop's log of 1.85 million likes has, and `python -m flows.backfill` turns it into published tables with the models that
a data set has by default, or with `--models` as these. `--set` goes to the run; `train.tune=off` leaves out the search
for settings. A run that is not done after `--at-most` seconds is stopped.

Prints a row a model: nDCG@100 on users never seen and its difference from popularity's, of the model's scores the best
on the test users, and the seconds of its fits; above them the run's status, minutes, CPU minutes and the largest
resident memory of its process. On a busy machine compare CPU minutes.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import duckdb

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.demo.story import DemoSettings, make_demo
from oneclass.tasks.stores.home import Home

USERS, LIKES, SEED = 166_666 / 195_795, 1_850_000 / 195_795, 7  # users and likes for each item
DATASET = """default_models = [{models}]
files = ["*.txt"]
value_min = 1
value_max = 5
id_order = "number"

[binarize]
threshold = 4
"""
MODELS = """
with quality as (
    select model, max(value) as ndcg
    from evaluation.metrics
    where metric = 'ndcg@100' and protocol = 'strong_generalization'
    group by model
), fits as (
    select model, sum(seconds) as seconds, max(peak_bytes) as peak from operations.model_fits group by model
)
select
    model,
    ndcg,
    ndcg - (select ndcg from quality where model = 'popularity') as gain,
    seconds,
    peak / 1e9 as gigabytes
from fits left join quality using (model)
order by ndcg desc nulls last
"""  # one row per model


def make_log(home: Path, items: int, likes: float, models: Sequence[str]) -> tuple[str, list[Path]]:
    """Make the log and its data set's file, and return the data set's name and the files."""
    settings = DemoSettings(users=round(USERS * items), items=items, likes=round(likes * items))
    name = f"items-{items}"
    (home / "datasets").mkdir(parents=True, exist_ok=True)
    (home / "datasets" / f"{name}.toml").write_text(DATASET.format(models=", ".join(f'"{model}"' for model in models)))
    return name, make_demo(Home(home / "made" / name, "demo"), settings, SEED)


def run(home: Path, name: str, files: list[Path], given: argparse.Namespace) -> str:
    """Run the command and describe how it ended and what it took."""
    command = [sys.executable, "-m", "flows.backfill", "--dataset", name, "--home", str(home), "--source"]
    command += [*map(str, files), "--protocols", given.protocols, *(["--set", *given.set] if given.set else [])]
    began = time.perf_counter()
    with (home / f"{name}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    while (ended := os.wait4(process.pid, os.WNOHANG))[0] == 0:
        if time.perf_counter() - began > given.at_most:
            process.terminate()
            ended = os.wait4(process.pid, 0)
            break
        time.sleep(0.5)
    status, used = os.waitstatus_to_exitcode(ended[1]), ended[2]
    return (
        f"status {status}, {(time.perf_counter() - began) / 60:.1f} min, "
        f"{(used.ru_utime + used.ru_stime) / 60:.1f} CPU min, {used.ru_maxrss / 1e6:.2f} GB"
    )


def main(arguments: list[str] | None = None) -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale.catalogues", description=__doc__, formatter_class=layout
    )
    parser.add_argument("--home", type=Path, required=True, help="where logs and tables are kept")
    parser.add_argument("--items", nargs="+", type=int, default=[1000, 10_000, 50_000, 195_795])
    parser.add_argument("--likes", type=float, default=LIKES, help="for each item")
    parser.add_argument("--at-most", type=float, default=1800, help="seconds of a run, after which it is stopped")
    default_models = Dataset(name="any").default_models
    parser.add_argument("--models", nargs="+", default=default_models, help="the data set's default models")
    parser.add_argument("--protocols", default="strong_generalization,leave_one_out", help="of the runs")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings of the run")
    given = parser.parse_args(arguments)
    home = given.home.resolve()
    for items in given.items:
        name, files = make_log(home, items, given.likes, given.models)
        print(f"\n{items:,} items: {run(home, name, files, given)}\n", flush=True)
        warehouse = home / name / "warehouse.duckdb"
        if not warehouse.exists():
            continue
        print("| model | nDCG@100 | minus popularity | seconds of its fits | GB |\n|---|---|---|---|---|")
        with duckdb.connect(str(warehouse), read_only=True) as connection:
            for model, ndcg, gain, seconds, gigabytes in connection.execute(MODELS).fetchall():
                quality = ("", "") if ndcg is None else (f"{ndcg:.4f}", f"{gain:+.4f}")
                print(f"| {model} | {' | '.join(quality)} | {seconds:.0f} | {gigabytes:.2f} |", flush=True)


if __name__ == "__main__":
    main()
