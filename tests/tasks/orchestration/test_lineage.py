"""What a stage is said to write, against the contracts and against what a run of the stages does write."""

from datetime import date

import numpy as np
import pytest

import data_contracts
from models.catalogue import MODELS
from tasks import datasets
from tasks.binarize import BinarizeSettings, binarize
from tasks.diagnose import diagnose
from tasks.evaluate import evaluate
from tasks.ingest import ingest
from tasks.orchestration import lineage
from tasks.publish import Choice, PublishSettings, publish
from tasks.split import SplitSettings, split
from tasks.stores import warehouse
from tasks.train import train
from tasks.tune import tune

BY_ANOTHER_FLOW = {"evaluation.sweeps"}
CALLS = {
    "ingest": {"sources": []},
    "split": {"protocols": ["strong_generalization", "leave_one_out", "given"]},
    "tune": {"digests": {}},
    "train": {"protocol": "all_edges", "model": "slim"},
    "evaluate": {"protocol": "leave_one_out", "fit_digests": {}},
    "publish": {"choice": Choice("slim", "score"), "judgement": object()},
}


def written(stage, home, **arguments):
    """Names of the tables among a stage's assets."""
    keys = [asset.key for asset in lineage.of(stage, {"home": home, **arguments}).writes]
    return {key.rpartition("/")[2] for key in keys if key.startswith("duckdb://")}


@pytest.mark.parametrize("stage", data_contracts.STAGES)
def test_every_table_with_a_contract_is_written_by_its_stage(home, stage):
    tables = {contract.table for contract in data_contracts.for_stage(stage)}
    kept = {table for table in tables if "." in table} - BY_ANOTHER_FLOW
    assert kept and written(stage, home, **CALLS.get(stage, {})) == kept


@pytest.mark.parametrize(
    ("stage", "arguments", "absent"),
    [
        ("split", {"protocols": ["given"]}, {"splits.strong_generalization", "splits.leave_one_out"}),
        (
            "evaluate",
            {"protocol": "given", "fit_digests": {}},
            {"evaluation.ranks_by_degree", "evaluation.calibration"},
        ),
        ("publish", {}, {"published.recommendations"}),
    ],
)
def test_a_table_that_this_call_does_not_write_is_left_out(home, stage, arguments, absent):
    made, all_of_stage = written(stage, home, **arguments), written(stage, home, **CALLS[stage])
    assert absent <= all_of_stage - made


class Stages:
    """Runs the stages one by one, and notes which tables with a contract each of them filled."""

    def __init__(self, home):
        self.home = home
        self.tables = [one.table for stage in data_contracts.STAGES for one in data_contracts.for_stage(stage)]
        self.tables = [table for table in self.tables if "." in table]

    def counts(self):
        with warehouse.connect(self.home) as connection:
            return {table: connection.execute(f"select count(*) from {table}").fetchone()[0] for table in self.tables}

    def run(self, function, *positional, **arguments):
        """The stage's result, after its lineage was compared with the tables whose rows have become more."""
        before = self.counts()
        result = function(self.home, *positional, **arguments)
        filled = {table for table, count in self.counts().items() if count > before[table]}
        names = function.__code__.co_varnames[1 : 1 + len(positional)]
        stage_arguments = dict(zip(names, positional, strict=True)) | arguments
        assert filled == written(function.__name__, self.home, **stage_arguments)
        return result


def test_a_run_writes_the_tables_that_are_named(home, tmp_path):
    generator = np.random.default_rng(7)
    pairs = {(user, user % 2 * 20 + int(item)) for user in range(60) for item in generator.integers(0, 20, 12)}
    lines = ["userId,movieId,rating", *(f"{user},{item},5" for user, item in sorted(pairs)), "1,2,many"]
    log = tmp_path / "ratings.csv"
    log.write_text("\n".join(lines) + "\n")
    protocols = ["strong_generalization", "leave_one_out"]

    stages = Stages(home)
    stages.run(ingest, datasets.load("ml-latest-small", home.root), sources=[log], run_id="run")
    stages.run(binarize, BinarizeSettings(), "run")
    digests = stages.run(split, SplitSettings(held_out_share=0.2), "run", protocols=protocols, seed=1).digests
    stages.run(diagnose, "run", 1)
    searched = {"models": {"paired_symbols": MODELS["paired_symbols"].Settings()}, "given": {}, "tuned": ()}
    stages.run(tune, "run", digests={one: digests[one] for one in protocols}, **searched, when="auto",
               day=date(2026, 1, 2), seed=1)  # fmt: skip
    fits = {}
    for protocol, model in ((one, model) for one in protocols for model in ("popularity", "paired_symbols")):
        settings = MODELS[model].Settings()
        of_protocol = {"protocol": protocol, "matrices_digest": digests[protocol]}
        fit = stages.run(train, "run", **of_protocol, model=model, settings=settings, seed=1)
        fits.setdefault(protocol, {})[model] = fit.digest
    for protocol in protocols:
        stages.run(evaluate, "run", protocol=protocol, matrices_digest=digests[protocol], fit_digests=fits[protocol])
    all_edges = {"protocol": "all_edges", "matrices_digest": digests["all_edges"]}
    settings = MODELS["popularity"].Settings()
    fit = stages.run(train, "run", **all_edges, model="popularity", settings=settings, seed=1)
    stages.run(
        publish,
        "run",
        PublishSettings(),
        choice=Choice("popularity", "score"),
        model_digest=fit.digest,
        matrices_digest=digests["all_edges"],
    )
    files = {home.published / name for name in (*lineage.PUBLISHED_FILES, "model")}
    assert files == set(home.published.iterdir())
