"""The stages of a run, each timed in a process of its own and without Prefect."""

import math
from typing import Any

import numpy as np

from benchmarks.scale.workloads import limits
from benchmarks.scale.workloads.limits import Rates
from benchmarks.scale.workloads.processes import Measurement, record_resources
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
FACTORS = 64  # of the product that bounds the scores of all models together
BEFORE_FITS, AFTER_FITS = ("ingest", "binarize", "split", "diagnose"), ("evaluate", "publish")
REQUIRED = BEFORE_FITS[:3]  # fits need their arrays
Results = dict[str, Any]  # `digests` of the matrices by protocol, `fits` by model, `ndcg` by model


def measure_stage(parameters: BackfillParameters, stage: str, earlier: Results, rates: Rates) -> list[Measurement]:
    """Measure one stage on what the stages before it left in the home.

    Args:
        earlier: results of the stages and fits before.
    """
    run, measurement = resolve_settings(parameters), Measurement(stage)
    lazy_gx.load_great_expectations()  # a run loads it once, in its first stage
    with record_resources(measurement):
        measurement.result = _run_stage(run, stage, earlier)
    if stage in AFTER_FITS:
        measurement.limit, measurement.limit_cpu = _bound_scores(run, stage, earlier, rates)
        measurement.ndcg = earlier["ndcg"].get(measurement.result.get("model")) if stage == "publish" else None
    elif stage == "ingest":
        measurement.limit, measurement.limit_cpu = "bare read_csv", limits.time_bare_read(run.home, list(run.sources))
    else:
        measurement.limit, measurement.limit_cpu = "create table as, by index", limits.time_bare_table(run.home)
    return [measurement]


def _run_stage(run: RunSettings, stage: str, earlier: Results) -> Results:
    home = run.home
    if stage == "ingest":
        ingest(home, run.dataset, list(run.sources), RUN, run.ingest)
    elif stage == "binarize":
        binarize(home, run.binarize, RUN)
    elif stage == "split":
        are_numbers = run.dataset.id_order == "number"
        splits = split(home, run.split, RUN, protocols=[PROTOCOL], seed=run.seed, ids_are_numbers=are_numbers)
        return {"digests": splits.digests}
    elif stage == "diagnose":
        diagnose(home, RUN, run.seed)
    elif stage == "evaluate":
        return {"failed": evaluate(home, RUN, PROTOCOL, earlier["digests"][PROTOCOL], earlier["fits"]).failed}
    else:
        return {"model": _publish_best(run, earlier)}
    return {}


def _publish_best(run: RunSettings, earlier: Results) -> str:
    """Choose, assess, fit on all edges and publish a model, as `flows.train_and_publish.publish_run` does."""
    home, digest = run.home, earlier["digests"][ALL_EDGES]
    choice = choose_model(home, RUN, run.publish, list(earlier["fits"]), PROTOCOL)
    challenger = promotion.ChallengerRun(
        choice.model, choice.score, run.models, [(earlier["digests"][PROTOCOL], earlier["fits"])], run.seed
    )
    assessment = promotion.assess_challenger(home, challenger, run.publish)
    settings = run.models[choice.model]
    fit = train(
        home, RUN, protocol=ALL_EDGES, matrices_digest=digest, model=choice.model, settings=settings, seed=run.seed
    )
    publish(
        home, RUN, run.publish, choice=choice, assessment=assessment, model_digest=fit.digest, matrices_digest=digest
    )
    return choice.model


def _bound_scores(run: RunSettings, stage: str, earlier: Results, rates: Rates) -> tuple[str, float]:
    """Bound a stage by the product of float32 factors that would give its scores."""
    if stage == "evaluate":
        part = matrices.load_split(run.home, earlier["digests"][PROTOCOL]).parts["test"]
        sizes = [*part.targets.shape, len(earlier["fits"])]
    else:
        sizes = matrices.load_split(run.home, earlier["digests"][ALL_EDGES]).train.shape
    return f"SGEMM of the scores, K = {FACTORS}", 2.0 * FACTORS * math.prod(map(np.int64, sizes)) / rates.sgemm
