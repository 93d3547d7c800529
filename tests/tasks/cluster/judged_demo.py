"""A small demo with everything that an evaluation judges, and what its tables then hold."""

from models.catalogue import MODELS
from tasks.binarize import BinarizeSettings, binarize
from tasks.datasets import load
from tasks.demo.story import DemoSettings, make_demo
from tasks.evaluate import calls, evaluate
from tasks.evaluate.tables import OF_LEAVE_ONE_OUT, OF_PROTOCOL
from tasks.ingest import ingest
from tasks.split import SplitSettings, split
from tasks.stores import warehouse
from tasks.train import fitted

PROTOCOLS = ["strong_generalization", "leave_one_out"]
SHORT = {
    "popularity": {},
    "random_graph": {"factors": 2, "iterations": 2},
    "paired_symbols": {"factors": 2, "iterations": 2},
    "wmf": {"factors": 4, "iterations": 2},
}
USERS_AT_ONCE = 40


def prepared(home):
    """By protocol the digests of its matrices and of the fits of SHORT."""
    logs = make_demo(home, DemoSettings(users=300, items=200, likes=9_000), 3)
    ingest(home, load("demo", home.root), logs, "run")
    binarize(home, BinarizeSettings(threshold=4, observed_negatives=True), "run")
    digests = split(home, SplitSettings(), "run", protocols=PROTOCOLS, seed=0, ids_are_numbers=True).digests
    return {
        protocol: (
            digests[protocol],
            {
                name: fitted(home, digests[protocol], name, MODELS[name].Settings(**settings), 0).digest
                for name, settings in SHORT.items()
            },
        )
        for protocol in PROTOCOLS
    }


def in_small_calls(monkeypatch):
    """Cut into calls of some users, of which there would be one otherwise; workers have the blocks that they have."""
    monkeypatch.setattr(calls, "USERS_OF_A_CALL", 1)
    monkeypatch.setattr(calls, "users_at_once", lambda *numbers: USERS_AT_ONCE)


def evaluated(home, digests, **executor):
    """Every row of the evaluation's tables, bit for bit, as one run of a name leaves them."""
    for protocol, (matrices, fits) in digests.items():
        assert evaluate(home, "run", protocol, matrices, fits, **executor).failed == {}
    with warehouse.connect(home, read_only=True) as connection:
        return {
            table: connection.execute(f"select * from evaluation.{table}").fetchall()
            for table in (*OF_PROTOCOL, *OF_LEAVE_ONE_OUT)
        }
