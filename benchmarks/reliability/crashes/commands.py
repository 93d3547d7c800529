"""What is run: one small command of each flow, in a process that is forked from one that has loaded everything."""

import gc
import hashlib
import importlib
import os
import pkgutil
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np

from oneclass.flows import commands
from oneclass.tasks.stores.stage_cache import table_digest

HOME = "home"  # a relative path, so that a copy of it is the same home wherever it lies
DEFAULT = "popularity,bpr_uniform,bpr_popularity,mrf_dense,slim,wmf,graph_filter,random_graph,paired_symbols,blend"
LOG = ("demo.users=220", "demo.items=60", "demo.likes=3500")
WEIGHED = "split.held_out_share=0.25"  # 55 validation users, of which a blend takes at least 50
KILLED_AT = 40  # of the changes of the night that was killed: its log is in, and the split is made
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
    "evaluation.ranks_by_degree": "run_id",
    "evaluation.beyond_accuracy": "run_id",
    "evaluation.strata": "run_id",
    "operations.model_settings": "run_id, origin, reason, searched_on, seconds",
}
OF_A_SWEEP = ("raw.events", "raw.rejects", "curated.interactions", "splits.strong_generalization")
FILES = ("recommendations.parquet", "evaluation.parquet", "evaluation.csv", "evaluation.md")


@dataclass(frozen=True)
class Flow:
    """A command.

    Attributes:
        module: of `flows`.
        dataset: whose home it works in.
        models: that it trains; none for one that chooses its own.
        words: of the command line, before `--set`.
        settings: of `--set`.
    """

    module: str
    dataset: str = "demo"
    models: str = DEFAULT
    words: tuple[str, ...] = ()
    settings: tuple[str, ...] = (*LOG, WEIGHED, "train.tune=off")

    def main(self) -> int:
        """Run it in this process, in the home below the folder it works in; the exit status."""
        models = ["--models", self.models] if self.models else []
        words = ["--dataset", self.dataset, "--home", HOME, "--threads", "1", *models, *self.words, "--set"]
        return commands.main(self.module, [*words, *self.settings])


FLOWS = {
    "backfill": Flow("backfill"),
    "nightly": Flow("nightly_retrain", "ml-latest-small", settings=(WEIGHED, "train.tune=off")),
    "tuned": Flow("backfill", models="popularity,slim,wmf", settings=(*LOG, WEIGHED, "train.tune=always")),
    "sweep": Flow("sweep", models="", words=("--sweep", "mrf_sparse_density"), settings=LOG),
}


def warm() -> None:
    """Load what a run loads, once for all processes that are forked from this one; no thread of it is at work then."""
    from oneclass import data_contracts, flows, tasks
    from oneclass.data_contracts import contracts, lazy_gx
    from oneclass.models import fingerprint, registry

    for package in (flows, tasks, data_contracts):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name != "oneclass.tasks.serve.app":
                importlib.import_module(found.name)
    lazy_gx.load_great_expectations()
    contracts.load()
    for name in DEFAULT.split(","):
        fingerprint.fingerprint_model(registry.MODELS[name])
    gc.collect()
    gc.freeze()  # else each process would look through all of it again, and write to its pages


def forked(folder: Path, work: Callable[[], int], log: Path) -> int:
    """Begin `work` in a process of its own that works in `folder`; its id. It ends with what `work` returns.

    Args:
        log: takes what it says.
    """
    sys.stdout.flush()
    if process := os.fork():
        return process
    status = 70
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with open(log, "ab") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        os.chdir(folder)
        status = work()
    except BaseException:  # noqa: BLE001  (whatever it is, this process ends here, and says why)
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def before(flow: str, folder: Path, run: Callable[[int], int]) -> None:
    """Prepare the home before the flow's run: for a night, one that ended well, one that was killed, and a new log.

    Args:
        folder: that the home is in.
        run: the flow's command, killed at that change of files; never at 0.

    Raises:
        SystemExit: the first night did not end well, or the second was not killed at work.
    """
    if flow != "nightly":
        return
    landing = folder / HOME / FLOWS[flow].dataset / "landing"
    landing.mkdir(parents=True)
    (landing / "ratings-1.csv").write_text(ratings(range(1, 15)))
    if run(0):
        raise SystemExit("the night before failed")
    (landing / "ratings-2.csv").write_text(ratings(range(15, 20)))
    run(KILLED_AT)
    if list(runs_of(landing.parent).values()) != ["completed", "running"]:
        raise SystemExit("the night that was to be killed was not at work yet")


def runs_of(home: Path) -> dict[str, str]:
    """The state of each run that a data set's folder knows, by its id, the earliest first."""
    if not (home / "warehouse.duckdb").exists():
        return {}
    copy = home.parent.parent / "looked-at"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for file in home.glob("warehouse.duckdb*"):  # DuckDB would replay a log that the run is to find
        shutil.copyfile(file, copy / file.name)
    try:
        with duckdb.connect(str(copy / "warehouse.duckdb")) as connection:
            asked = "select run_id, state from operations.runs order by started_at"
            return dict(connection.execute(asked).fetchall())
    except duckdb.Error:  # it has no tables yet
        return {}


def ratings(films: range) -> str:
    """A MovieLens csv: 240 people of two tastes rate films of 40, 1 to 5 stars; each film of the range at most once."""
    lines = ["userId,movieId,rating,timestamp"]
    for user in range(240):
        order = np.random.default_rng(user).permutation(40)
        for place in films:
            film = int(order[place])
            stars = 1 + (user * 7 + film * 3) % 3 + 2 * (film % 2 == user % 2)
            lines.append(f"{user + 1},{film + 1},{stars},{10**9 + 1000 * place + user}")
    return "\n".join(lines) + "\n"


def left(folder: Path, flow: str) -> dict[str, str]:
    """Digests of what a run leaves: the rows of each table, whatever their order, and each published file.

    Args:
        folder: that the home is in.
    """
    return left_in(folder / HOME / FLOWS[flow].dataset, sweep=flow == "sweep")


def left_in(home: Path, *, sweep: bool = False) -> dict[str, str]:
    """`left` of a data set's folder."""
    found = {}
    with duckdb.connect(str(home / "warehouse.duckdb"), read_only=True) as connection:
        newest = connection.execute("select max_by(run_id, place) from operations.evaluated_runs").fetchone()[0]
        relations = {table: table for table in (OF_A_SWEEP if sweep else TABLES)}
        if sweep:
            relations["evaluation.sweeps"] = "(select * exclude (swept_at, seconds) from evaluation.sweeps)"
        else:
            for table, but in LATEST.items():
                relations[table] = f"(select * exclude ({but}) from {table} where run_id = '{newest}')"
        for table, relation in relations.items():  # no Polars: its threads must not run where one forks
            found[table] = table_digest(connection, relation)
    for name in () if sweep else FILES:
        found[name] = hashlib.sha256((home / "published" / name).read_bytes()).hexdigest()
    half = [str(path.relative_to(home)) for path in home.rglob("partial-*")]
    found["left half made"] = ", ".join(half)
    return found
