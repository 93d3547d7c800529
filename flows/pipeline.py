"""The pipeline: every stage from raw logs to published tables, and the two flows that run it."""

import contextlib
import logging
import time
from collections.abc import Generator
from dataclasses import replace
from datetime import date

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Cancelled

from oneclass.flows import run_hooks, signals
from oneclass.flows.parameters import BackfillParameters, NightlyRetrainParameters, RunParameters, flow_with_parameters
from oneclass.flows.run_hooks import check_home, notify_startup_failure, prepared
from oneclass.flows.settings import ModelSettings, RunSettings, resolve_settings
from oneclass.flows.train_and_publish import ModelRun
from oneclass.tasks import capacity, cluster, leaderboard
from oneclass.tasks.binarize.aggregate import LikeSelection
from oneclass.tasks.binarize.stage import binarize_task
from oneclass.tasks.demo import make_demo
from oneclass.tasks.diagnose import diagnose_task
from oneclass.tasks.errors import InputError, ModelsFailed, OneclassError
from oneclass.tasks.ingest import file_registry
from oneclass.tasks.ingest.sources import scan_logs
from oneclass.tasks.ingest.stage import ingest_task
from oneclass.tasks.orchestration import artifacts
from oneclass.tasks.orchestration.notifications import send_notifications
from oneclass.tasks.orchestration.progress import format_duration
from oneclass.tasks.protocols import PROTOCOLS, choose_publish_protocol, list_splits
from oneclass.tasks.publish.stage import Published, run_after
from oneclass.tasks.report import report_task
from oneclass.tasks.split.stage import SplitPlan, Splits, split_task
from oneclass.tasks.stores import resources, runs
from oneclass.tasks.stores.fits import collect_garbage
from oneclass.tasks.tuning import auto

ABOUT = """A contract closes each stage: if it is broken, the run stops, and what was published before stays. The
artifact `summary` says what is published and why, `contracts` which rules do not hold. The report,
`<home>/<dataset>/report/index.html`, has all of it with figures."""

logger = logging.getLogger(__name__)
signals.report_errors_once()

NIGHTLY_DEPLOYMENT = "nightly-retrain"


def format_run_name() -> str:
    """Return a flow run's name, such as `ml-1m 2026-11-20 0198c3f1`: data set, last day of events, end of its id."""
    return f"{flow_run.parameters['dataset']} {flow_run.parameters.get('until') or date.today()} {flow_run.id[-8:]}"


@flow(name="backfill", description=f"From raw logs to published tables. {ABOUT}", flow_run_name=format_run_name)
@flow_with_parameters(BackfillParameters)
def backfill(given: BackfillParameters) -> Published:
    """Turn raw logs into published tables."""
    return run_pipeline(prepared.get() or _resolve_settings(given), "backfill")


@flow(
    name=NIGHTLY_DEPLOYMENT, description=f"Retrains on all events, old and new. {ABOUT}", flow_run_name=format_run_name
)
@flow_with_parameters(NightlyRetrainParameters)
def nightly_retrain(given: NightlyRetrainParameters) -> Published | State:
    """Retrain on all events, including the new files of the landing folder, and publish.

    A run that is late, or finds the data set locked by another run, ends as cancelled.
    """
    run = prepared.get() or _resolve_settings(given)
    if why := _reason_to_skip(run):
        logger.warning("%s: %s", run.dataset.name, why)
        artifacts.tag_flow_run(run.dataset.name, "cancelled")
        send_notifications(
            run.notify, dataset=run.dataset.name, run_id=artifacts.current_run_id(), state="cancelled", text=why
        )
        return Cancelled(message=why)
    return run_pipeline(run, NIGHTLY_DEPLOYMENT)


def _resolve_settings(given: RunParameters) -> RunSettings:
    with notify_startup_failure(given, artifacts.current_run_id()):
        return resolve_settings(given.to_backfill())


def _reason_to_skip(run: RunSettings) -> str | None:
    """Return why this run has nothing to do, or None.

    Also None when the home cannot be opened: the run then fails with the same error, and notifies.
    """
    try:
        with runs.lock_data_set(run.home):
            later_run = runs.find_completed_since(run.home, flow_run.scheduled_start_time, NIGHTLY_DEPLOYMENT)
    except runs.DataSetLocked:
        return "another run is at work on this data set; nothing was done."
    except OneclassError:
        return None
    return later_run and f"this run was due before run {later_run} began, which did its work; nothing was done."


def run_pipeline(run: RunSettings, flow_name: str) -> Published:
    """Run every stage in order. Stages exchange names and digests, never data."""
    run_id, started, name = artifacts.current_run_id(), time.perf_counter(), run.dataset.name
    plan = f"{len(run.models)} models ({', '.join(run.models)}) under {' and '.join(run.protocols)}; seed {run.seed}"
    logger.info("%s: %s, %d threads, in %s", name, plan, run.home.limits.threads, run.home.folder)
    with contextlib.ExitStack() as stack:
        stack.enter_context(run_hooks.notify_on_end(run, run_id, flow_name))
        stack.enter_context(resources.memory_errors(f"{name}: {flow_name}"))
        if run is not prepared.get():
            scan_logs(run.split_files or run.sources, run.dataset)
            check_home(run)
        stack.enter_context(run_context(run, run_id, flow_name))
        executor = stack.enter_context(cluster.open_executor(run.cluster, run.home))
        splits = build_splits(run, run_id)
        run = drop_optional_models(run, splits)
        named = run.models if run.are_named else [run.publish.model or ""]
        room = capacity.measure_logs(run.home, splits.digests.values()), capacity.available_memory(executor)
        run = replace(run, models=capacity.choose_models(run.home, run_id, run.models, named, *room))
        diagnose_task(run.home, run_id, run.seed)
        run = replace(run, models=_tune_settings(run, run_id, splits, executor))
        models = ModelRun(run, run_id, splits, executor)
        models.train_models()
        models.evaluate_models()
        published = models.publish()
        report_task(run.home, run_id)
        collect_garbage(run.home)
        logger.info(
            "%s: done in %s; report: %s", name, format_duration(time.perf_counter() - started), published.report
        )
        if published.decision and not published.decision.promoted:
            logger.warning("%s: %s", name, published.decision.sentence)
        if models.failed:
            failures = [f"{model} failed and was left out: {error}" for model, error in models.failed.items()]
            what = published.decision.sentence if published.decision else "no recommendations were made"
            raise ModelsFailed("\n".join([*failures, f"The run went on without: {what}. Tables: {published.folder}"]))
    return published


def drop_optional_models(run: RunSettings, splits: Splits) -> RunSettings:
    """Leave out default models of repeats if lists exclude seen items, and those of order if likes have none.

    Raises:
        InputError: the user named a model of order, and likes have none.
    """
    reasons = dict[str, str]()
    for name, settings in run.models.items():
        if settings.reads_order and not splits.ordered:
            reasons[name] = "no event has a time" if run.split.order else "split.order is false"
            if name not in run.optional_models:
                advice = "If the lines of the logs are in order, set split.order = true; else leave the model out"
                raise InputError(f"{name}: needs the order of likes, and {reasons[name]}. {advice}.")
        elif name in run.optional_models and settings.reads_times and not splits.seen_items.included:
            reasons[name] = "lists exclude seen items"
    for name, reason in reasons.items():
        logger.info("%s: left out, since %s", name, reason)
    return replace(run, models={name: of for name, of in run.models.items() if name not in reasons})


def _tune_settings(
    run: RunSettings, run_id: str, splits: Splits, executor: cluster.Executor
) -> dict[str, ModelSettings]:
    """Return the settings of each model, searched where the data set has none."""
    judged_by = choose_publish_protocol(run.publish.protocol, splits.digests)
    judged_by = judged_by or next((name for name in PROTOCOLS if list_splits(name, splits.digests)), None)
    asked = run.train.tune, run.given, list(run.dataset.models), run.seed, run.until or date.today()
    return auto.tune_task(run.home, run_id, auto.SearchRequest(judged_by, *asked), splits.digests, run.models, executor)


@contextlib.contextmanager
def run_context(run: RunSettings, run_id: str, flow_name: str) -> Generator[None]:
    """Lock the data set for this run, limit its threads and record it. Runs whose process died are reconciled."""
    standing = run.home.published.resolve()
    with (
        cluster.limit_threads(run.home.limits.threads),
        signals.register_run(run.home, run_id),
        runs.record_run(run.home, run_id, flow_name, run.describe()) as earlier,
    ):
        artifacts.reconcile_runs(earlier)
        # The publication was damaged, and an earlier one stands in its place.
        if run.home.published.resolve() != standing:
            run_after(run.home, run_id, run.publish.after)
        yield


def build_splits(run: RunSettings, run_id: str) -> Splits:
    """Ingest, binarize and split. Returns the digests of the run's protocols in the matrix store."""
    if run.rebuild:
        file_ids = file_registry.find_file_ids(run.home, run.split_files)
    else:
        sources = make_demo(run.home, run.demo, run.seed) if run.is_demo else list(run.split_files or run.sources)
        replaces = run.replace or (run.is_demo and not file_registry.holds_exactly(run.home, sources))
        logs = ingest_task(run.home, run.dataset, sources, run_id, run.ingest, replace=replaces)
        file_ids = tuple(one.file_id for one in logs)
    if run.split_files and not len(file_ids) == len(set(file_ids)) == 2:
        raise InputError("--split-files: TRAIN and TEST must be two different logs, one file each.")
    binarize_task(run.home, run.binarize, run_id, since=run.since, until=run.until)
    plan = SplitPlan(
        run.split,
        run.protocols,
        run.seed,
        LikeSelection(run.binarize, run.since, run.until),
        optional=run.optional_protocols,
        seen=run.publish.seen,
        given_files=(file_ids[:1], file_ids[1:]) if run.split_files else None,
        times=run.times,
    )
    return split_task(run.home, run_id, plan)


def format_result(published: Published) -> str:
    """Format the final output of a command: the leaderboard and the paths of the tables and the report."""
    paths = f"Tables: {published.folder}", f"Report: {published.report}"
    lines = [leaderboard.format_markdown(published.table, "Evaluation"), *paths]
    if published.decision and not published.decision.promoted:
        lines.append(f"Warning: {published.decision.sentence}")
    return "\n".join(lines)
