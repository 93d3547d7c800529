"""The commands that are killed: one small run of each flow, in a process forked from one that has loaded everything."""

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

HOME = "home"  # relative, so that a copy is the same home in any folder
DEFAULT_MODELS = (
    "popularity,bpr_uniform,bpr_popularity,mrf_dense,slim,wmf,graph_filter,random_graph,paired_symbols,blend"
)
SMALL_LOG = ("demo.users=220", "demo.items=60", "demo.likes=3500")
HELD_OUT = "split.held_out_share=0.25"  # 55 validation users; a blend needs at least 50
KILLED_CHANGE = 40  # change of files of the killed night: its log is ingested, its split stored
USERS, FILMS = 240, 40  # of the MovieLens logs
EXIT_UNKNOWN_ERROR = 70
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
TABLES_OF_RUN = {  # with the columns that differ between any two runs
    "evaluation.metrics": "run_id",
    "evaluation.comparisons": "run_id",
    "evaluation.ranks_by_degree": "run_id",
    "evaluation.beyond_accuracy": "run_id",
    "evaluation.strata": "run_id",
    "operations.model_settings": "run_id, origin, reason, searched_on, seconds",
}
SWEEP_TABLES = ("raw.events", "raw.rejects", "curated.interactions", "splits.strong_generalization")
FILES = ("recommendations.parquet", "evaluation.parquet", "evaluation.csv", "evaluation.md")


@dataclass(frozen=True)
class Flow:
    """A command.

    Attributes:
        module: of `flows`.
        dataset: data set of the home.
        models: that it trains; empty if the flow chooses them.
        words: of the command line, before `--set`.
        settings: of `--set`.
    """

    module: str
    dataset: str = "demo"
    models: str = DEFAULT_MODELS
    words: tuple[str, ...] = ()
    settings: tuple[str, ...] = (*SMALL_LOG, HELD_OUT, "train.tune=off")

    def main(self) -> int:
        """Run the command in this process, in the home below its folder; returns the exit status."""
        models = ["--models", self.models] if self.models else []
        words = ["--dataset", self.dataset, "--home", HOME, "--threads", "1", *models, *self.words, "--set"]
        return commands.main(self.module, [*words, *self.settings])


FLOWS = {
    "backfill": Flow("backfill"),
    "nightly": Flow("nightly_retrain", "ml-latest-small", settings=(HELD_OUT, "train.tune=off")),
    "tuned": Flow("backfill", models="popularity,slim,wmf", settings=(*SMALL_LOG, HELD_OUT, "train.tune=always")),
    "sweep": Flow("sweep", models="", words=("--sweep", "mrf_sparse_density"), settings=SMALL_LOG),
}


def preload_modules() -> None:
    """Load the modules and contracts of a run, once for all forks of this process; no thread is left running."""
    from oneclass import data_contracts, flows, tasks
    from oneclass.data_contracts import contracts, lazy_gx
    from oneclass.models import fingerprint, registry

    for package in (flows, tasks, data_contracts):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name != "oneclass.tasks.serve.app":
                importlib.import_module(module.name)
    lazy_gx.load_great_expectations()
    contracts.load()
    for name in DEFAULT_MODELS.split(","):
        fingerprint.fingerprint_model(registry.MODELS[name])
    gc.collect()
    gc.freeze()  # otherwise each fork would traverse these objects and copy their pages


def fork_process(folder: Path, work: Callable[[], int], log: Path) -> int:
    """Run `work` in a fork, in `folder`, with its output in a log; returns the process id.

    The fork exits with the status that `work` returns.
    """
    sys.stdout.flush()
    if pid := os.fork():
        return pid
    status = EXIT_UNKNOWN_ERROR
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with open(log, "ab") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        os.chdir(folder)
        status = work()
    except BaseException:  # noqa: BLE001  (the fork must end here and log any error)
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def prepare_home(flow: str, folder: Path, run: Callable[[int], int]) -> None:
    """Prepare the home of a flow: a nightly run has one night that ended, one that was killed, and a new log.

    Args:
        folder: of the home.
        run: runs the flow's command, killed before that change of files; not killed at 0.

    Raises:
        SystemExit: the first night failed, or the second was not killed at work.
    """
    if flow != "nightly":
        return
    landing = folder / HOME / FLOWS[flow].dataset / "landing"
    landing.mkdir(parents=True)
    (landing / "ratings-1.csv").write_text(format_ratings(range(1, 15)))
    if run(0):
        raise SystemExit("the first night failed")
    (landing / "ratings-2.csv").write_text(format_ratings(range(15, 20)))
    run(KILLED_CHANGE)
    if list(read_run_states(landing.parent).values()) != ["completed", "running"]:
        raise SystemExit("the second night was not at work when it was killed")


def read_run_states(home: Path) -> dict[str, str]:
    """Read the state of each run in a data set's folder, by its id, the earliest first."""
    if not (home / "warehouse.duckdb").exists():
        return {}
    copy = home.parent.parent / "warehouse-copy"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for file in home.glob("warehouse.duckdb*"):  # opening the original would replay the log that the next run must find
        shutil.copyfile(file, copy / file.name)
    try:
        with duckdb.connect(str(copy / "warehouse.duckdb")) as connection:
            query = "select run_id, state from operations.runs order by started_at"
            return dict(connection.execute(query).fetchall())
    except duckdb.Error:  # no tables yet
        return {}


def format_ratings(ranks: range) -> str:
    """Format a MovieLens CSV: users of two tastes rate, with 1 to 5 stars, the films at these ranks of their order."""
    lines = ["userId,movieId,rating,timestamp"]
    for user in range(USERS):
        order = np.random.default_rng(user).permutation(FILMS)
        for rank in ranks:
            film = int(order[rank])
            stars = 1 + (user * 7 + film * 3) % 3 + 2 * (film % 2 == user % 2)
            lines.append(f"{user + 1},{film + 1},{stars},{10**9 + 1000 * rank + user}")
    return "\n".join(lines) + "\n"


def digest_flow(flow: str, folder: Path) -> dict[str, str]:
    """Digest the home that a flow's run left in a folder, as `digest_home` does."""
    return digest_home(folder / HOME / FLOWS[flow].dataset, is_sweep=flow == "sweep")


def digest_home(home: Path, *, is_sweep: bool = False) -> dict[str, str]:
    """Digest a data set's folder: the rows of each table in any order, each published file, and partial files."""
    with duckdb.connect(str(home / "warehouse.duckdb"), read_only=True) as connection:
        newest = connection.execute("select max_by(run_id, place) from operations.evaluated_runs").fetchone()[0]
        relations = {table: table for table in (SWEEP_TABLES if is_sweep else TABLES)}
        if is_sweep:
            relations["evaluation.sweeps"] = "(select * exclude (swept_at, seconds) from evaluation.sweeps)"
        else:
            for table, columns in TABLES_OF_RUN.items():
                relations[table] = f"(select * exclude ({columns}) from {table} where run_id = '{newest}')"
        # Not by Polars, whose threads must not run in a process that forks.
        digests = {table: table_digest(connection, relation) for table, relation in relations.items()}
    for name in () if is_sweep else FILES:
        digests[name] = hashlib.sha256((home / "published" / name).read_bytes()).hexdigest()
    digests["partial files"] = ", ".join(str(path.relative_to(home)) for path in home.rglob("partial-*"))
    return digests
