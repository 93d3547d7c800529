"""Train, evaluate and publish the models of a run.

Each model is a task that makes its fits under all protocols; on a large log it is one task for the first protocol and,
unless it is surely below the best there, one for the others. A model that fails does not stop the others.
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import date

from oneclass.flows.settings import ModelSettings, RunSettings
from oneclass.tasks import capacity
from oneclass.tasks.blend import BlendChoice, blend_task
from oneclass.tasks.cluster import LOCAL, Executor, PendingCall
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.evaluate.stage import evaluate_task
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
from oneclass.tasks.publish.plan import PublicationPlan, RecommendationSpec, specify_recommendations
from oneclass.tasks.publish.stage import Published, publish_task
from oneclass.tasks.recommend.like_calibration import UNCALIBRATED, UNVERIFIED, Calibrations, has_like
from oneclass.tasks.split.stage import Splits
from oneclass.tasks.train import Fit, FitPlan, is_model_error, record_fits, submit_fits, train_task

logger = logging.getLogger(__name__)

BLEND_MODEL = "blend"
# Their blend is weighed by users never seen; leave_one_out has no validation part of its own.
UNSEEN_USERS_SPLITS = ("strong_generalization", "leave_one_out")


@dataclass
class ModelRun:
    """The models of a run, from their fits to the publication of one.

    Attributes:
        fits: by split and model.
        failed: the error of each model that failed and is left out.
    """

    run: RunSettings
    run_id: str
    splits: Splits
    executor: Executor = LOCAL
    fits: dict[str, dict[str, Fit]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def train_models(self) -> None:
        """Fit every model on the training edges of every split; the blend last, since it needs its components.

        `run` gets the settings of the blend that may be published, or loses the blend if it does not help.
        """
        protocols = (*self.run.protocols, NEXT_EVENTS_VALIDATION)
        names = [split for name in protocols for split in list_splits(name, self.splits.digests)]
        self.fits = {name: {} for name in names}
        models = {name: settings for name, settings in self.run.models.items() if name != BLEND_MODEL}
        protocol = next(map(find_protocol, names), "")
        first = list_splits(protocol, names)
        later = [name for name in names if name not in first]
        digests = [self.splits.digests[name] for name in later]
        if capacity.estimate_seconds(self.run.home, models, digests) > capacity.LONG_SECONDS:
            self._train_all(models, first)
            fitted = self._list_fitted(first)
            behind = capacity.find_models_behind(self.run.home, self.run_id, protocol, fitted, self.run.publish)
            models, kept = ({name: of[name] for name in of if name not in behind} for of in (models, self.run.models))
            self.run = replace(self.run, models=kept)
            self._train_all(models, later)
        else:
            self._train_all(models, names)
        if BLEND_MODEL not in self.run.models:
            return
        weighed_by = {name: self._find_weighing_protocol(name) for name in [*names, ALL_EDGES]}
        chosen = {
            protocol: self._choose_blend(protocol, is_published=protocol == weighed_by[ALL_EDGES])
            for protocol in dict.fromkeys(weighed_by.values())
        }
        blends = {name: chosen[of].find_settings(self.splits.digests.get(name)) for name, of in weighed_by.items()}
        published = blends.pop(ALL_EDGES)
        if settings := {name: blend for name, blend in blends.items() if blend}:
            self._train(BLEND_MODEL, self._submit_fits(BLEND_MODEL, settings))
        self.run = replace(self.run, models=models | ({BLEND_MODEL: published} if published else {}))

    def _train_all(self, models: Mapping[str, ModelSettings], splits: Collection[str]) -> None:
        """Fit models on some splits, but for those that failed before."""
        left = [name for name in models if splits and name not in self.failed]
        pending = {name: self._submit_fits(name, dict.fromkeys(splits, models[name])) for name in left}
        for number, model in enumerate(pending, 1):
            logger.info("model %d of %d: %s", number, len(pending), model)
            self._train(model, pending[model], is_needed=models.keys() - {model} <= self.failed.keys())

    def _submit_fits(self, model: str, settings: Mapping[str, ModelSettings]) -> dict[str, PendingCall]:
        """Submit the fits of a model on some splits; this process makes those of a blend, whose cost is unknown."""
        run = self.run
        plan = FitPlan(model, settings, self.splits.digests, run.seed, run.train.warm_start)
        return submit_fits(run.home, plan, LOCAL if model == BLEND_MODEL else self.executor)

    def _train(self, model: str, pending: Mapping[str, PendingCall], *, is_needed: bool = False) -> bool:
        """Train a model by the task of its name; return False if it fails and the run goes on without it.

        Args:
            is_needed: raise the error of the model, since nothing is left without it.
        """
        try:
            fitted = train_task(model, pending)
        except Exception as error:
            if is_needed or not is_model_error(error):
                raise
            logger.error("%s is left out: %s", model, error)
            self.failed[model] = str(error)
            return False
        for split, fit in fitted.items():
            self.fits.setdefault(split, {})[model] = fit
        return True

    def _find_weighing_protocol(self, split: str) -> str | None:
        """Return the protocol by whose validation part the blend of a split is weighed: the one that chooses what is
        published, but for tables on users never seen one of such users.
        """
        digests = self.splits.digests
        if find_protocol(split) in UNSEEN_USERS_SPLITS and list_splits("strong_generalization", digests):
            return "strong_generalization"
        protocol = choose_publish_protocol(self.run.publish.protocol, digests)
        return protocol or next((name for name in ("next_events", "given") if name in digests), None)

    def _choose_blend(self, protocol: str | None, *, is_published: bool) -> BlendChoice:
        """Return the blend's given settings, or components and weights by a protocol's validation users."""
        run = self.run
        if "components" in run.given.get(BLEND_MODEL, ()) or BLEND_MODEL in run.dataset.models:
            return BlendChoice(settings=run.models[BLEND_MODEL])  # pyright: ignore[reportArgumentType]  (the blend's)
        if protocol is None:
            logger.info("blend: no protocol of this run has validation edges to weigh models by")
            return BlendChoice()
        return blend_task(
            run.home,
            self.run_id if is_published else None,
            protocol=protocol,
            judged=self._list_fitted(find_validation_splits(protocol, self.splits.digests)),
            settings=run.models,
            seed=run.seed,
            day=run.until or date.today(),
        )

    def _list_fitted(self, splits: list[str]) -> list[FittedSplit]:
        """Return the digests of some splits with the digests of the fits on each, of models that did not fail."""
        digests, failed = self.splits.digests, self.failed
        fits = [{model: fit.digest for model, fit in self.fits[name].items() if model not in failed} for name in splits]
        return [(digests[name], of_split) for name, of_split in zip(splits, fits, strict=True)]

    def evaluate_models(self) -> None:
        """Record the fits, and evaluate them on the test part of every protocol."""
        run = self.run
        record_fits(run.home, self.run_id, self.fits)
        for protocol in run.protocols:
            if tested := list_splits(protocol, self.fits):
                judged_on = list(dict.fromkeys([*tested, *find_validation_splits(protocol, self.fits)]))
                arguments = run.home, self.run_id, protocol, self._list_fitted(judged_on), self.executor
                self.failed |= evaluate_task(*arguments, metrics=run.evaluate.metrics).failed

    def publish(self) -> Published:
        """Choose a model on validation, compare it with the champion, fit it on every edge and publish its lists.

        A run of `given` alone publishes only its table. A run that rebuilds takes the place of what stands, as the
        first run of a home does.
        """
        run, digests = self.run, self.splits.digests
        if ALL_EDGES not in digests:
            return publish_task(run.home, self.run_id, PublicationPlan(settings=run.publish))
        candidates = [model for model in run.models if model not in self.failed]
        if run.publish.model in self.failed or not candidates:
            raise OneclassError("\n".join(f"{model} failed: {error}" for model, error in self.failed.items()))
        protocol = choose_publish_protocol(run.publish.protocol, digests)
        judged_on = find_validation_splits(protocol, digests) if protocol else []
        choice = choose_model(run.home, self.run_id, run.publish, candidates, protocol, folds=len(judged_on))
        night = promotion.Night(
            run.home,
            settings=run.models,
            protocol=protocol,
            judged=self._list_fitted(judged_on),
            seed=run.seed,
            made_with=gates.describe_settings(
                run.binarize.model_dump(mode="json"),
                run.split.model_dump(mode="json"),
                self.splits.seen_items.choice,
                run.dataset.declared_rules.rules,
                run.publish.cold_share,
            ),
        )
        assessment = promotion.assess_challenger(night, choice, run.publish)
        if run.rebuild:
            assessment = promotion.Assessment(assessment.challenger, None, note="made anew from the remaining events")
        published = self._publish_assessed(night, assessment)
        decision = published.decision
        if decision is None or decision.promoted:
            return published
        instead = promotion.assess_champion(night, decision, run.publish)
        return self._publish_assessed(night, instead) if instead else published

    def _publish_assessed(self, night: promotion.Night, assessment: promotion.Assessment) -> Published:
        """Fit the assessed configuration on every edge and publish it, unless the assessment keeps what stands."""
        run, challenger, lists = self.run, assessment.challenger, None
        if not assessment.keeps_champion:
            model, settings = challenger.model, challenger.load_settings()
            # The companion comes first, since a blend of which it is a component takes its fit.
            companion = self._train_companion(model, night.protocol)
            pending = self._submit_fits(model, {ALL_EDGES: settings})
            if self._train(model, pending, is_needed=assessment.champion is None):
                fits = self.fits[ALL_EDGES]
                is_of_run = companion is not None or settings == run.models.get(model)
                lists = RecommendationSpec(
                    model,
                    challenger.score,
                    fits[model].digest,
                    self.splits.digests[ALL_EDGES],
                    run.publish.top_n,
                    exclude_seen=not self.splits.seen_items.included,
                    companion=(companion, fits[companion].digest) if companion else None,
                    calibrations=self._calibrate(companion or model, night) if is_of_run else UNVERIFIED,
                )
                lists = specify_recommendations(run.publish, lists, seed=run.seed)
            else:
                fault = f"{model} could not be fitted on every edge: {self.failed[model]}"
                assessment = assessment.with_objections(fault)
            record_fits(run.home, self.run_id, self.fits)
        rules = run.dataset.declared_rules
        plan = PublicationPlan(settings=run.publish, lists=lists, assessment=assessment, declared=rules)
        return publish_task(run.home, self.run_id, plan, self.executor)

    def _train_companion(self, published: str, protocol: str | None) -> str | None:
        """Fit the companion of the published model on every edge and return its name, if there is one."""
        run, candidates = self.run, [model for model in self.run.models if model not in self.failed]
        companion = choose_companion(run.home, self.run_id, run.publish, published, candidates, protocol)
        if companion is None or companion in self.failed:
            return None
        is_fitted = self._train(companion, self._submit_fits(companion, {ALL_EDGES: run.models[companion]}))
        return companion if is_fitted else None

    def _calibrate(self, model: str, night: promotion.Night) -> Calibrations:
        """Calibrate the `like` of the published lists, by the run's fits that validation users judged."""
        if not has_like(model):
            return UNCALIBRATED
        # The validation users of strong_generalization may have explicit negatives.
        unseen = self._list_fitted(list_splits("strong_generalization", self.splits.digests))
        judged, explicit = ([(of, fits[model]) for of, fits in on if model in fits] for on in (night.judged, unseen))
        return calibrate_like(self.run.home, model, judged, explicit)
