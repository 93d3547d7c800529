"""A small demo with everything that an evaluation judges, and what its tables then hold."""

from oneclass.models.memory_estimates import FitCost
from oneclass.models.registry import MODELS
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.datasets import load_dataset
from oneclass.tasks.demo.story import DemoSettings, make_demo
from oneclass.tasks.evaluate import evaluate, jobs
from oneclass.tasks.evaluate.tables import LEAVE_ONE_OUT_TABLES, PROTOCOL_TABLES
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import SplitPlan, split
from oneclass.tasks.stores import warehouse
from oneclass.tasks.train import load_or_fit

PROTOCOLS = ["strong_generalization", "leave_one_out"]
SHORT = {
    "popularity": {},
    "random_graph": {"factors": 2, "iterations": 2},
    "paired_symbols": {"factors": 2, "iterations": 2},
    "wmf": {"factors": 4, "iterations": 2},
}
USERS_AT_ONCE = 40


def prepare_demo(home):
    """By protocol the digests of its matrices and of the fits of SHORT."""
    logs = make_demo(home, DemoSettings(users=300, items=200, likes=9_000), 3)
    ingest(home, load_dataset("demo", home.root), logs, "run")
    binarize(home, BinarizeSettings(threshold=4, explicit_negatives=True), "run")
    digests = split(home, "run", SplitPlan(SplitSettings(), PROTOCOLS, seed=0)).digests
    return {
        protocol: (
            digests[protocol],
            {
                name: load_or_fit(home, digests[protocol], name, MODELS[name].Settings(**settings), 0).digest
                for name, settings in SHORT.items()
            },
        )
        for protocol in PROTOCOLS
    }


def in_small_calls(monkeypatch):
    """Cut into calls of some users, of which there would be one otherwise; workers have the blocks that they have."""
    monkeypatch.setattr(jobs, "USERS_PER_BATCH", 1)
    monkeypatch.setattr(FitCost, "users_per_block", lambda cost, items: USERS_AT_ONCE)


def evaluate_fits(home, digests, **executor):
    """Every row of the evaluation's tables, bit for bit, as one run of a name leaves them."""
    with warehouse.open_warehouse(home) as connection:
        connection.execute("delete from operations.stage_results where stage like 'evaluate%'")  # nothing is copied
    for protocol, judged in digests.items():
        assert evaluate(home, "run", protocol, [judged], **executor).failed == {}
    with warehouse.open_warehouse(home, read_only=True) as connection:
        return {
            table: connection.execute(f"select * from evaluation.{table}").fetchall()
            for table in (*PROTOCOL_TABLES, *LEAVE_ONE_OUT_TABLES)
        }
