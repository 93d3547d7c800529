"""The models of a run: fitted on each protocol's training edges, one chosen, judged, fitted on every edge and published.

A model that fails does not stop the others.
"""

import logging
from dataclasses import replace
from datetime import date

from pydantic import BaseModel

from flows.settings import RunSettings
from tasks import promotion
from tasks.blend import blend_task
from tasks.cluster import LOCAL, Executor, PendingCall
from tasks.errors import OneclassError
from tasks.protocols import ALL_EDGES
from tasks.publish import Published, choose, publish_task
from tasks.split import Splits
from tasks.train import is_of_the_model, submit_fit, train_task

logger = logging.getLogger(__name__)

BLEND = "blend"
PendingFits = dict[tuple[str, str], PendingCall]  # by protocol and model
WEIGHED_ON = (promotion.PROTOCOL, "next_events", "given")  # the first that a run has


def fitted(
    run: RunSettings, run_id: str, splits: Splits, executor: Executor = LOCAL
) -> tuple[RunSettings, dict[str, dict[str, str]], dict[str, str]]:
    """Every model on the training edges of every protocol, the blend last, for it is made of the others.

    Returns:
        The run with the blend's settings, or without a blend that is not worth it; the digests of the fits by protocol
        and model; and the models that failed, with the reason.
    """
    failed: dict[str, str] = {}
    asked = [protocol for protocol in run.protocols if protocol in splits.digests]
    alone = replace(run, models={name: of for name, of in run.models.items() if name != BLEND})
    pending = _submit_fits(run, splits, asked, executor)
    fits = {protocol: train(alone, run_id, protocol, splits, failed, list(alone.models), pending) for protocol in asked}
    if BLEND not in run.models:
        return run, fits, failed
    settings = _blend(run, run_id, splits, fits)
    if settings is None:
        return alone, fits, failed
    run = replace(run, models={**alone.models, BLEND: settings})
    for protocol in asked:
        fits[protocol] |= train(run, run_id, protocol, splits, failed, [BLEND])
    return run, fits, failed


def _blend(run: RunSettings, run_id: str, splits: Splits, fits: dict[str, dict[str, str]]) -> BaseModel | None:
    """The blend's settings: those that were given, else members and weights from the validation users of a protocol."""
    if "members" in run.given.get(BLEND, ()) or BLEND in run.dataset.models:
        return run.models[BLEND]
    protocol = next((name for name in WEIGHED_ON if name in fits), None)
    if protocol is None:
        logger.info("blend: is weighed on %s, none of which is among this run's protocols", ", ".join(WEIGHED_ON))
        return None
    return blend_task(
        run.home,
        run_id,
        protocol=protocol,
        matrices_digest=splits.digests[protocol],
        digests=fits[protocol],
        settings=run.models,
        seed=run.seed,
        day=run.until or date.today(),
    )


def _submit_fits(run: RunSettings, splits: Splits, protocols: list[str], executor: Executor) -> PendingFits:
    """Submit every fit except the blend's, which needs the fits of its components.

    With warm starts nothing is submitted: the earlier fits are found in the warehouse, which the coordinator alone reads.
    """
    if run.train.warm_start:
        return {}
    return {
        (protocol, model): submit_fit(
            executor,
            run.home,
            protocol=protocol,
            matrices_digest=splits.digests[protocol],
            model=model,
            settings=settings,
            seed=run.seed,
        )
        for protocol in protocols
        for model, settings in run.models.items()
        if model != BLEND
    }


def train(
    run: RunSettings,
    run_id: str,
    protocol: str,
    splits: Splits,
    failed: dict[str, str],
    models: list[str],
    pending: PendingFits | None = None,
) -> dict[str, str]:
    """Some of the run's models on the training edges of one protocol; the digests of the fits.

    A model that fails is left out from there on and noted in `failed`; where none is left, its error stops the run.
    """
    fits = {}
    for number, model in enumerate(models, 1):
        if model in failed:
            continue
        logger.info("%s: fit %d of %d, %s", protocol, number, len(models), model)
        try:
            fits[model] = _fit(run, run_id, protocol, splits, model, (pending or {}).get((protocol, model)))
        except Exception as error:
            if not is_of_the_model(error) or len(failed) == len(run.models) - 1:
                raise
            logger.error("%s: %s is left out: %s", protocol, model, error)
            failed[model] = str(error)
    return fits


def _fit(
    run: RunSettings, run_id: str, protocol: str, splits: Splits, model: str, pending: PendingCall | None = None
) -> str:
    fit = train_task(
        run.home,
        run_id,
        protocol=protocol,
        matrices_digest=splits.digests[protocol],
        model=model,
        settings=run.models[model],
        seed=run.seed,
        warm=run.train.warm_start,
        pending=pending,
    )
    return fit.digest


def publish(
    run: RunSettings,
    run_id: str,
    splits: Splits,
    fits: dict[str, str],
    failed: dict[str, str],
    executor: Executor = LOCAL,
) -> Published:
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
        if not judgement.stays:
            chosen = replace(run, models={choice.model: run.models[choice.model]})
            pending = _submit_fits(chosen, splits, [ALL_EDGES], executor).get((ALL_EDGES, choice.model))
            digest = _fit(run, run_id, ALL_EDGES, splits, choice.model, pending)
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
        executor=executor,
    )
