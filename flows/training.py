"""The models of a run: fitted on each protocol's training edges, one chosen, judged, fitted on every edge and published.

A model that fails does not stop the others.
"""

import logging

from flows.settings import RunSettings
from tasks import promotion
from tasks.errors import OneclassError
from tasks.protocols import ALL_EDGES
from tasks.publish import Published, choose, publish_task
from tasks.split import Splits
from tasks.train import is_of_the_model, train_task

logger = logging.getLogger(__name__)


def train(run: RunSettings, run_id: str, protocol: str, splits: Splits, failed: dict[str, str]) -> dict[str, str]:
    """Each model on the training edges of one protocol; the digests of the fits.

    A model that fails is left out from there on and noted in `failed`; where none is left, its error stops the run.
    """
    fits = {}
    for number, model in enumerate(run.models, 1):
        if model in failed:
            continue
        logger.info("%s: fit %d of %d, %s", protocol, number, len(run.models), model)
        try:
            fits[model] = _fit(run, run_id, protocol, splits, model)
        except Exception as error:
            if not is_of_the_model(error) or len(failed) == len(run.models) - 1:
                raise
            logger.error("%s: %s is left out: %s", protocol, model, error)
            failed[model] = str(error)
    return fits


def _fit(run: RunSettings, run_id: str, protocol: str, splits: Splits, model: str) -> str:
    fit = train_task(
        run.home,
        run_id,
        protocol=protocol,
        matrices_digest=splits.digests[protocol],
        model=model,
        settings=run.models[model],
        seed=run.seed,
        warm=run.train.warm_start,
    )
    return fit.digest


def publish(run: RunSettings, run_id: str, splits: Splits, fits: dict[str, str], failed: dict[str, str]) -> Published:
    """Choose on validation, judge, fit once more on every edge, recommend; `given` alone publishes its table only.

    Args:
        fits: digests of the fits on the training edges of `promotion.PROTOCOL`.
        failed: the models that are left out; the chosen one is added where it cannot be fitted on every edge.
    """
    if ALL_EDGES not in splits.digests:
        return publish_task(run.home, run_id, run.publish)
    candidates = [model for model in run.models if model not in failed]
    if run.publish.model in failed:
        raise OneclassError(f"publish.model = {run.publish.model}: failed: {failed[run.publish.model]}")
    if not candidates:
        raise OneclassError("\n".join(f"{model} failed: {error}" for model, error in failed.items()))
    choice = choose(run.home, run_id, run.publish, candidates)
    night = promotion.Night(
        choice.model,
        choice.score,
        settings=run.models,
        fits={model: digest for model, digest in fits.items() if model not in failed},
        matrices_digest=splits.digests.get(promotion.PROTOCOL),
        seed=run.seed,
        asked_for=run.publish.model is not None,
    )
    judgement = promotion.judge(run.home, night, run.publish)
    digest = None
    try:
        digest = None if judgement.stays else _fit(run, run_id, ALL_EDGES, splits, choice.model)
    except Exception as error:
        if not is_of_the_model(error) or judgement.champion is None:
            raise
        failed[choice.model] = str(error)
        judgement = judgement.against(f"{choice.model} could not be fitted on every edge: {error}")
    return publish_task(
        run.home,
        run_id,
        run.publish,
        choice=choice,
        judgement=judgement,
        model_digest=digest,
        matrices_digest=splits.digests[ALL_EDGES],
    )
