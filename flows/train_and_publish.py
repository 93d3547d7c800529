"""Train the models of a run: fit each on every protocol's training edges, choose one, evaluate it against the champion,
fit it on all edges and publish.

A model that fails does not stop the others.
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import date

from oneclass.flows.settings import ModelSettings, RunSettings
from oneclass.tasks.blend import BlendChoice, blend_task
from oneclass.tasks.cluster import LOCAL, Executor, PendingCall
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.protocols import (
    ALL_EDGES,
    NEXT_EVENTS_VALIDATION,
    FittedSplit,
    choose_publish_protocol,
    find_protocol,
    find_validation_splits,
    list_splits,
)
from oneclass.tasks.publish import gates, promotion
from oneclass.tasks.publish.calibrate import calibrate_like
from oneclass.tasks.publish.choice import choose_companion, choose_model
from oneclass.tasks.publish.plan import PublicationPlan, specify_recommendations
from oneclass.tasks.publish.stage import Published, publish_task
from oneclass.tasks.recommend.companion import has_like
from oneclass.tasks.recommend.like_calibration import UNCALIBRATED, Calibrations
from oneclass.tasks.split.stage import Splits
from oneclass.tasks.train import is_model_error, submit_fit, take_stored_fits, train_task

logger = logging.getLogger(__name__)

BLEND_MODEL = "blend"
# Their blend is weighed by users never seen; leave_one_out has no validation part of its own.
UNSEEN_USERS_SPLITS = ("strong_generalization", "leave_one_out")
PendingFits = dict[tuple[str, str], PendingCall]  # by protocol and model


def train_models(
    run: RunSettings, run_id: str, splits: Splits, executor: Executor = LOCAL
) -> tuple[RunSettings, dict[str, dict[str, str]], dict[str, str]]:
    """Fit every model on the training edges of every split; the blend last, since it needs its components.

    Returns:
        The run with the blend's settings, or without a blend that does not help; the digests of the fits by split
        and model; and the failed models with their errors.
    """
    failed: dict[str, str] = {}
    in_order = (*run.protocols, NEXT_EVENTS_VALIDATION)
    protocols = [split for name in in_order for split in list_splits(name, splits.digests)]
    components_run = replace(run, models={name: of for name, of in run.models.items() if name != BLEND_MODEL})
    stored = _take_stored_fits(run, run_id, splits, dict.fromkeys(protocols, components_run.models))
    pending = _submit_fits(run, splits, protocols, executor, stored)
    fits = {}
    for protocol in protocols:
        missing = [model for model in components_run.models if model not in stored[protocol]]
        fitted = stored[protocol] | train_protocol(components_run, run_id, protocol, splits, failed, missing, pending)
        fits[protocol] = {
            model: fitted[model] for model in components_run.models if model in fitted and model not in failed
        }
    if BLEND_MODEL not in run.models:
        return run, fits, failed
    weighed_by = {name: _find_weighing_protocol(run, splits, name) for name in [*protocols, ALL_EDGES]}
    chosen = {
        protocol: _choose_blend(run, run_id, splits, fits, protocol, is_published=protocol == weighed_by[ALL_EDGES])
        for protocol in dict.fromkeys(weighed_by.values())
    }
    blends = {name: chosen[weighed_by[name]].find_settings(splits.digests.get(name)) for name in weighed_by}
    settings_of = {name: {BLEND_MODEL: settings} for name in protocols if (settings := blends[name])}
    stored = _take_stored_fits(run, run_id, splits, settings_of)
    for name, settings in settings_of.items():
        blended_run, missing = _with_blend(components_run, settings[BLEND_MODEL]), [] if stored[name] else [BLEND_MODEL]
        fits[name] |= stored[name] | train_protocol(blended_run, run_id, name, splits, failed, missing)
    return _with_blend(components_run, blends[ALL_EDGES]), fits, failed


def _with_blend(run: RunSettings, settings: ModelSettings | None) -> RunSettings:
    return replace(run, models={**run.models, BLEND_MODEL: settings}) if settings else run


def _take_stored_fits(
    run: RunSettings, run_id: str, splits: Splits, models: Mapping[str, Mapping[str, ModelSettings]]
) -> dict[str, dict[str, str]]:
    """Record the fits of models by split that are in the store, and return their digests; with warm starts, which
    depend on earlier runs, none are taken.
    """
    if run.train.warm_start:
        return {name: {} for name in models}
    return take_stored_fits(run.home, run_id, splits.digests, models, run.seed)


def _find_weighing_protocol(run: RunSettings, splits: Splits, split: str) -> str | None:
    """Return the protocol by whose validation part the blend of a split is weighed.

    It is the one that chooses what is published; but tables on users never seen have a blend that such users weighed.
    """
    if find_protocol(split) in UNSEEN_USERS_SPLITS and list_splits("strong_generalization", splits.digests):
        return "strong_generalization"
    protocol = choose_publish_protocol(run.publish.protocol, splits.digests)
    return protocol or next((name for name in ("next_events", "given") if name in splits.digests), None)


def _choose_blend(
    run: RunSettings,
    run_id: str,
    splits: Splits,
    fits: dict[str, dict[str, str]],
    protocol: str | None,
    *,
    is_published: bool,
) -> BlendChoice:
    """Return the blend's settings: those given, or components and weights chosen on a protocol's validation users."""
    if "components" in run.given.get(BLEND_MODEL, ()) or BLEND_MODEL in run.dataset.models:
        return BlendChoice(settings=run.models[BLEND_MODEL])  # pyright: ignore[reportArgumentType]  (the blend's)
    if protocol is None:
        logger.info("blend: no protocol of this run has validation edges to weigh models by")
        return BlendChoice()
    judged_on = find_validation_splits(protocol, splits.digests)
    return blend_task(
        run.home,
        run_id if is_published else None,
        protocol=protocol,
        judged=[(splits.digests[name], fits[name]) for name in judged_on],
        settings=run.models,
        seed=run.seed,
        day=run.until or date.today(),
    )


def _submit_fits(
    run: RunSettings,
    splits: Splits,
    protocols: list[str],
    executor: Executor,
    stored: Mapping[str, Collection[str]] | None = None,
) -> PendingFits:
    """Submit every fit except those of the `stored` models, by protocol, and the blend's, which needs its components'.

    With warm starts nothing is submitted: only the coordinator reads the warehouse, where the earlier fits are
    recorded.
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
        if model != BLEND_MODEL and model not in (stored or {}).get(protocol, ())
    }


def train_protocol(
    run: RunSettings,
    run_id: str,
    protocol: str,
    splits: Splits,
    failed: dict[str, str],
    models: list[str],
    pending: PendingFits | None = None,
) -> dict[str, str]:
    """Fit some of the run's models on the training edges of one protocol and return the digests of the fits.

    A model that fails is added to `failed` and skipped later; if no model is left, its error stops the run.
    """
    fits = {}
    for number, model in enumerate(models, 1):
        if model in failed:
            continue
        logger.info("%s: fit %d of %d, %s", protocol, number, len(models), model)
        try:
            fits[model] = _load_or_fit(run, run_id, protocol, splits, model, (pending or {}).get((protocol, model)))
        except Exception as error:
            if not is_model_error(error) or len(failed) == len(run.models) - 1:
                raise
            logger.error("%s: %s is left out: %s", protocol, model, error)
            failed[model] = str(error)
    return fits


def _load_or_fit(
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


def publish_run(
    run: RunSettings,
    run_id: str,
    splits: Splits,
    fits: Mapping[str, Mapping[str, str]],
    failed: dict[str, str],
    executor: Executor = LOCAL,
) -> Published:
    """Choose on validation, evaluate, refit on every edge and recommend; a run of `given` alone publishes only its
    table.

    A run that rebuilds takes the place of what stands, as the first run of a home does.

    Args:
        fits: digests of the fits, by split and model.
        failed: the failed models; the chosen one is added if its fit on every edge fails.
    """
    if ALL_EDGES not in splits.digests:
        return publish_task(run.home, run_id, PublicationPlan(settings=run.publish))
    candidates = [model for model in run.models if model not in failed]
    if run.publish.model in failed:
        raise OneclassError(f"publish.model = {run.publish.model}: failed: {failed[run.publish.model]}")
    if not candidates:
        raise OneclassError("\n".join(f"{model} failed: {error}" for model, error in failed.items()))
    protocol = choose_publish_protocol(run.publish.protocol, splits.digests)
    judged_on = find_validation_splits(protocol, splits.digests) if protocol else []
    choice = choose_model(run.home, run_id, run.publish, candidates, protocol, folds=len(judged_on))
    night = promotion.Night(
        run.home,
        settings=run.models,
        protocol=protocol,
        judged=[
            (splits.digests[name], {model: digest for model, digest in fits[name].items() if model not in failed})
            for name in judged_on
        ],
        seed=run.seed,
        made_with=gates.describe_settings(
            run.binarize.model_dump(mode="json"),
            run.split.model_dump(mode="json"),
            splits.seen_items.choice,
            run.dataset.declared_rules.rules,
            run.publish.cold_share,
        ),
    )
    unseen = [(splits.digests[name], fits[name]) for name in list_splits("strong_generalization", splits.digests)]
    assessment = promotion.assess_challenger(night, choice, run.publish)
    if run.rebuild:
        note = "made anew from the remaining events"
        assessment = promotion.Assessment(assessment.challenger, None, note=note)
    published = _publish_assessed(run, run_id, splits, assessment, night, unseen, failed, executor)
    decision = published.decision
    if decision is not None and not decision.promoted:
        instead = promotion.assess_champion(night, decision, run.publish)
        if instead is not None:
            published = _publish_assessed(run, run_id, splits, instead, night, unseen, failed, executor)
    return published


def _publish_assessed(
    run: RunSettings,
    run_id: str,
    splits: Splits,
    assessment: promotion.Assessment,
    night: promotion.Night,
    unseen: list[FittedSplit],
    failed: dict[str, str],
    executor: Executor,
) -> Published:
    """Fit the assessed configuration on every edge and publish it, unless the assessment keeps what stands.

    Args:
        unseen: the fits of strong_generalization, whose validation users may have explicit negatives.
    """
    challenger, digest, companion = assessment.challenger, None, None
    model = challenger.model
    try:
        if not assessment.keeps_champion:
            companion = _fit_companion(run, run_id, splits, model, night.protocol, failed, executor)
            chosen = replace(run, models={model: challenger.load_settings()})
            pending = _submit_fits(chosen, splits, [ALL_EDGES], executor).get((ALL_EDGES, model))
            digest = _load_or_fit(chosen, run_id, ALL_EDGES, splits, model, pending)
    except Exception as error:
        if not is_model_error(error) or assessment.champion is None:
            raise
        failed[model] = str(error)
        assessment = assessment.with_objections(f"{model} could not be fitted on every edge: {error}")
    lists = digest and specify_recommendations(
        run.publish,
        model,
        challenger.score,
        digest,
        splits.digests[ALL_EDGES],
        seen_items=splits.seen_items.included,
        companion=companion,
        calibrations=_calibrate(run, companion[0] if companion else model, challenger, night, unseen),
        seed=run.seed,
    )
    rules = run.dataset.declared_rules
    plan = PublicationPlan(settings=run.publish, lists=lists or None, assessment=assessment, declared=rules)
    return publish_task(run.home, run_id, plan, executor)


def _fit_companion(
    run: RunSettings,
    run_id: str,
    splits: Splits,
    published: str,
    protocol: str | None,
    failed: dict[str, str],
    executor: Executor,
) -> tuple[str, str] | None:
    """Fit the companion of the published model on every edge; without it lists are published all the same.

    It is fitted first, so that a blend of which it is a component takes the fit.

    Returns:
        Its name and the digest of the fit; None if there is none, or the fit fails.
    """
    candidates = [model for model in run.models if model not in failed]
    companion = choose_companion(run.home, run_id, run.publish, published, candidates, protocol)
    if companion is None or companion in failed:
        return None
    alone = replace(run, models={companion: run.models[companion]})
    try:
        pending = _submit_fits(alone, splits, [ALL_EDGES], executor).get((ALL_EDGES, companion))
        return companion, _load_or_fit(alone, run_id, ALL_EDGES, splits, companion, pending)
    except Exception as error:
        if not is_model_error(error):
            raise
        logger.error("%s is left out beside the published lists: %s", companion, error)
        failed[companion] = str(error)
        return None


def _calibrate(
    run: RunSettings,
    model: str,
    challenger: promotion.Candidate,
    night: promotion.Night,
    unseen: list[FittedSplit],
) -> Calibrations:
    """Calibrate the `like` of the published lists, by the fits that validation users judged."""
    settings = challenger.load_settings() if model == challenger.model else run.models[model]
    if not has_like(model) or settings != run.models.get(model):
        return UNCALIBRATED
    judged, explicit = ([(split, fits[model]) for split, fits in on if model in fits] for on in (night.judged, unseen))
    return calibrate_like(run.home, model, judged, explicit)
