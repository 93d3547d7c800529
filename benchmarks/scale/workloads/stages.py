"""The stages of a run, each timed as the pipeline makes it, in a process of its own and without Prefect."""

import math
from typing import Any

import numpy as np

from benchmarks.scale.workloads import limits
from benchmarks.scale.workloads.apart import Took, clock
from benchmarks.scale.workloads.limits import Rates
from oneclass.data_contracts import lazy_gx
from oneclass.flows.parameters import BackfillParameters
from oneclass.flows.settings import RunSettings, resolve_settings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.diagnose import diagnose
from oneclass.tasks.evaluate import evaluate
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.protocols import ALL_EDGES
from oneclass.tasks.publish import promotion
from oneclass.tasks.publish.choice import choose_model
from oneclass.tasks.publish.stage import publish
from oneclass.tasks.split.stage import split
from oneclass.tasks.stores import matrices
from oneclass.tasks.train import train

RUN, PROTOCOL = "ladder", "strong_generalization"
K = 64  # of the product that bounds the scores of all models together
BEFORE_FITS, AFTER_FITS = ("ingest", "binarize", "split", "diagnose"), ("evaluate", "publish")
NEEDED = BEFORE_FITS[:3]  # without which there are no arrays
Made = dict[str, Any]  # `digests` of the matrices by protocol, `fits` by model, `ndcg` by model


def measure(given: BackfillParameters, stage: str, made: Made, rates: Rates) -> list[Took]:
    """One stage on what those before it left in the home."""
    run, took = resolve_settings(given), Took(stage)
    lazy_gx.load_great_expectations()  # a run loads it once, in its first stage
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
        evaluated = evaluate(home, RUN, PROTOCOL, made["digests"][PROTOCOL], made["fits"])
        return {"failed": evaluated.failed}
    else:
        return {"model": _publish(run, made)}
    return {}


def _publish(run: RunSettings, made: Made) -> str:
    """The model that is chosen, judged, fitted on every edge and published, as `flows.train_and_publish.publish_run`
    does.
    """
    home, digest = run.home, made["digests"][ALL_EDGES]
    choice = choose_model(home, RUN, run.publish, list(made["fits"]), PROTOCOL)
    night = promotion.ChallengerRun(
        choice.model, choice.score, run.models, [(made["digests"][PROTOCOL], made["fits"])], run.seed
    )
    judgement = promotion.assess_challenger(home, night, run.publish)
    settings = run.models[choice.model]
    fit = train(
        home, RUN, protocol=ALL_EDGES, matrices_digest=digest, model=choice.model, settings=settings, seed=run.seed
    )
    publish(
        home, RUN, run.publish, choice=choice, assessment=judgement, model_digest=fit.digest, matrices_digest=digest
    )
    return choice.model


def _product(run: RunSettings, stage: str, made: Made, rates: Rates) -> tuple[str, float]:
    """The product of float32 factors that would make the scores of the stage."""
    if stage == "evaluate":
        part = matrices.load_split(run.home, made["digests"][PROTOCOL]).parts["test"]
        sides = [*part.targets.shape, len(made["fits"])]
    else:
        sides = matrices.load_split(run.home, made["digests"][ALL_EDGES]).train.shape
    return f"SGEMM of the scores, K = {K}", 2.0 * K * math.prod(map(np.int64, sides)) / rates.sgemm
