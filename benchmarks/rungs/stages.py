"""The stages of a run, each timed as the pipeline makes it, in a process of its own and without Prefect."""

import math
from typing import Any

import numpy as np

from benchmarks.rungs import limits
from benchmarks.rungs.apart import Took, clock
from benchmarks.rungs.limits import Rates
from data_contracts import loading
from flows.parameters import Backfill
from flows.settings import RunSettings, resolve
from tasks import promotion
from tasks.binarize import binarize
from tasks.diagnose import diagnose
from tasks.evaluate import evaluate
from tasks.ingest import ingest
from tasks.protocols import ALL_EDGES
from tasks.publish import choose, publish
from tasks.split import split
from tasks.stores import matrices
from tasks.train import train

RUN, PROTOCOL = "ladder", promotion.PROTOCOL
K = 64  # of the product that bounds the scores of all models together
BEFORE_FITS, AFTER_FITS = ("ingest", "binarize", "split", "diagnose"), ("evaluate", "publish")
NEEDED = BEFORE_FITS[:3]  # without which there are no arrays
Made = dict[str, Any]  # `digests` of the matrices by protocol, `fits` by model, `ndcg` by model


def measure(given: Backfill, stage: str, made: Made, rates: Rates) -> list[Took]:
    """One stage on what those before it left in the home."""
    run, took = resolve(given), Took(stage)
    loading.great_expectations()  # a run loads it once, in its first stage
    with clock(took):
        took.found = _work(run, stage, made)
    if stage in AFTER_FITS:
        took.limit, took.limit_cpu = _product(run, stage, made, rates)
        took.ndcg = made["ndcg"].get(took.found.get("model")) if stage == "publish" else None
    elif stage == "ingest":
        took.limit, took.limit_cpu = "bare read_csv", limits.bare_read(run.home, list(run.sources))
    else:
        took.limit, took.limit_cpu = "create table as, by index", limits.bare_table(run.home)
    return [took]


def _work(run: RunSettings, stage: str, made: Made) -> Made:
    home = run.home
    if stage == "ingest":
        ingest(home, run.dataset, list(run.sources), RUN, run.ingest)
    elif stage == "binarize":
        binarize(home, run.binarize, RUN)
    elif stage == "split":
        numbers = run.dataset.id_order == "number"
        found = split(home, run.split, RUN, protocols=[PROTOCOL], seed=run.seed, ids_are_numbers=numbers)
        return {"digests": found.digests}
    elif stage == "diagnose":
        diagnose(home, RUN, run.seed)
    elif stage == "evaluate":
        judged = evaluate(home, RUN, PROTOCOL, made["digests"][PROTOCOL], made["fits"])
        return {"failed": judged.failed}
    else:
        return {"model": _publish(run, made)}
    return {}


def _publish(run: RunSettings, made: Made) -> str:
    """The model that is chosen, judged, fitted on every edge and published, as `flows.training.publish` does."""
    home, digest = run.home, made["digests"][ALL_EDGES]
    choice = choose(home, RUN, run.publish, list(made["fits"]))
    night = promotion.Night(choice.model, choice.score, run.models, made["fits"], made["digests"][PROTOCOL], run.seed)
    judgement = promotion.judge(home, night, run.publish)
    settings = run.models[choice.model]
    fit = train(
        home, RUN, protocol=ALL_EDGES, matrices_digest=digest, model=choice.model, settings=settings, seed=run.seed
    )
    publish(home, RUN, run.publish, choice=choice, judgement=judgement, model_digest=fit.digest, matrices_digest=digest)
    return choice.model


def _product(run: RunSettings, stage: str, made: Made, rates: Rates) -> tuple[str, float]:
    """The product of float32 factors that would make the scores of the stage."""
    if stage == "evaluate":
        part = matrices.read(run.home, made["digests"][PROTOCOL]).parts["test"]
        sides = [*part.targets.shape, len(made["fits"])]
    else:
        sides = matrices.read(run.home, made["digests"][ALL_EDGES]).train.shape
    return f"SGEMM of the scores, K = {K}", 2.0 * K * math.prod(map(np.int64, sides)) / rates.sgemm
