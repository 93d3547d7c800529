"""The sequence of stages, from raw logs to published tables, and the two flows that run all of it."""

import contextlib
import logging
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.runtime import flow_run
from prefect.states import Cancelled
from pydantic import BaseModel

from flows import descriptions, endings, telling
from flows.parameters import Backfill, NightlyRetrain, taking
from flows.settings import RunSettings, resolve
from flows.training import fitted, publish
from tasks import cluster, item_titles, machine, main_table, promotion
from tasks.binarize import binarize_task
from tasks.demo.story import make_demo
from tasks.diagnose import diagnose_task
from tasks.errors import InputError, OneclassError, PartlyFailed, SettingsWrong
from tasks.evaluate.stage import evaluate_task
from tasks.ingest import expected_sources, ingest_task, inspect
from tasks.orchestration import artifacts, crashed_runs, run_ids
from tasks.orchestration.notices import notify
from tasks.orchestration.progress import duration
from tasks.publish import Published
from tasks.report import report_task
from tasks.split import Splits, split_task
from tasks.stores import matrices, retention, runs, warehouse
from tasks.tune import tune_task
from tasks.tuning.before_fits import Wanted

logger = logging.getLogger(__name__)

NIGHTLY = "nightly-retrain"
ROOMS = ("flows", "tasks", "models", "data_contracts", "sql")


def run_name() -> str:
    """The name of a flow run, such as `ml-1m 2026-11-20`: the day up to which it takes events, by default today."""
    return f"{flow_run.parameters['dataset']} {flow_run.parameters.get('until') or date.today()}"


@flow(name="backfill", description=descriptions.BACKFILL, flow_run_name=run_name)
@taking(Backfill)
def backfill(given: Backfill) -> Published:
    """From raw logs to published tables."""
    return run_sequence(resolve(given), "backfill")


@flow(name=NIGHTLY, description=descriptions.NIGHTLY, flow_run_name=run_name)
@taking(NightlyRetrain)
def nightly_retrain(given: NightlyRetrain) -> Published | State:
    """Retrain on everything so far, the new files of the landing folder included, and publish.

    One night at a time works on a data set, whichever deployment it is of: the data set's own lock sees to that, which
    a process that died does not keep. A run that comes too late, or meets another, ends as cancelled.
    """
    try:
        run = resolve(given.as_backfill())
    except InputError as error:
        raise SettingsWrong(str(error)) from error
    if why := _needless(run):
        logger.warning("%s: %s", run.dataset.name, why)
        notify(run.notify, dataset=run.dataset.name, run_id=run_ids.current(), state="cancelled", text=why)
        return Cancelled(message=why)
    return run_sequence(run, NIGHTLY)


def _needless(run: RunSettings) -> str | None:
    """Why there is nothing for this run to do; None where there is.

    Also None where the home cannot be opened: the run will meet that too, where somebody is told of it.
    """
    later = None
    try:
        with runs.exclusive(run.home):
            later = runs.completed_since(run.home, flow_run.scheduled_start_time, NIGHTLY)
    except runs.HeldByAnother:
        return "another run is at work on this data set; nothing was done."
    except OneclassError as error:
        logger.debug("%s: %s", run.dataset.name, error)
    if later:
        return f"this run was due before run {later} began, which did its work; nothing was done."
    return None


def check(run: RunSettings) -> None:
    """Find what would stop the run before anything is written.

    Raises:
        InputError: a source or the table of titles is absent or cannot be read, or the home cannot be written to or is held by another run.
    """
    sources = run.split_files or run.sources
    if sources:
        inspect(run.dataset, list(sources))
    elif not run.is_demo and not any(run.home.landing.glob("*")) and not _has_events(run):
        raise InputError(expected_sources(run.home, run.dataset))
    if run.publish.titles:
        item_titles.read(Path(run.publish.titles), run.dataset.columns.item, named_by="publish.titles")
    with runs.exclusive(run.home), warehouse.connect(run.home):
        pass


def run_sequence(run: RunSettings, flow_name: str) -> Published:
    """Every stage in order; a stage hands on names and digests, never data."""
    run_id = run_ids.current()
    began = time.perf_counter()
    plan = f"{len(run.models)} models ({', '.join(run.models)}) under {' and '.join(run.protocols)}"
    where = f"{run.home.limits.threads} threads, in {run.home.folder}"
    logger.info("%s: %s; seed %d, %s", run.dataset.name, plan, run.seed, where)
    with contextlib.ExitStack() as held:
        held.enter_context(telling.told(run, run_id, flow_name))
        held.enter_context(machine.shortage_told(f"{run.dataset.name}: {flow_name}"))
        check(run)  # again: a deployment has no command that checks first, and whoever is to be told has to hear of it
        held.enter_context(recorded(run, run_id, flow_name))
        executor = held.enter_context(cluster.open_executor(run.cluster, run.home, flow_run.id))
        splits = prepare(run, run_id)
        diagnose_task(run.home, run_id, run.seed)
        run = replace(run, models=_tuned(run, run_id, splits, executor))
        run, fits, failed = fitted(run, run_id, splits, executor)
        for protocol, of_protocol in fits.items():
            judged = evaluate_task(run.home, run_id, protocol, splits.digests[protocol], of_protocol, executor)
            failed |= judged.failed
        published = publish(run, run_id, splits, fits.get(promotion.PROTOCOL, {}), failed, executor)
        report_task(run.home, run_id)
        artifacts.evaluation(run.home, published.table)
        artifacts.promotion(run.home, published.decision)
        retention.tidy(run.home)
        took = duration(time.perf_counter() - began)
        logger.info("%s: done in %s; report: %s", run.dataset.name, took, published.report)
        if published.decision and not published.decision.promoted:
            logger.warning("%s: %s", run.dataset.name, published.decision.sentence)
        if failed:
            raise PartlyFailed(_without(failed, published))
    return published


def _tuned(run: RunSettings, run_id: str, splits: Splits, executor: cluster.Executor) -> dict[str, BaseModel]:
    """The settings that every fit of the run has."""
    return tune_task(
        run.home,
        run_id,
        digests={name: splits.digests[name] for name in run.protocols if name in splits.digests},
        models=run.models,
        wanted=Wanted(run.train.tune, run.given, list(run.dataset.models)),
        day=run.until or date.today(),
        seed=run.seed,
        executor=executor,
    )


def _without(failed: dict[str, str], published: Published) -> str:
    """What a run says at its end in which some models failed."""
    lines = [f"{model} failed and was left out: {error}" for model, error in failed.items()]
    what = published.decision.sentence if published.decision else "no recommendations were made"
    return "\n".join([*lines, f"The run went on without: {what}. Tables: {published.folder}"])


@contextlib.contextmanager
def recorded(run: RunSettings, run_id: str, flow_name: str, **more: Any) -> Iterator[None]:
    """Hold the data set for this run and keep its row; runs whose process died are put right, in Prefect too.

    Args:
        more: what else was asked for, to be kept with the settings.
    """
    with (
        endings.at_work(run.home, run_id),
        runs.recorded(run.home, run_id, flow_name, run.describe() | more) as earlier,
    ):
        crashed_runs.settle(earlier)
        yield


def prepare(run: RunSettings, run_id: str) -> Splits:
    """Ingest, binarize, split; the digests of the run's protocols in the matrix store."""
    _keep_modules()
    sources = list(run.split_files or run.sources)
    if run.is_demo:
        sources = make_demo(run.home, run.demo, run.seed)
    replace = run.is_demo or run.replace
    ingested = ingest_task(run.home, run.dataset, sources, run_id, run.ingest, replace=replace)
    binarize_task(run.home, run.binarize, run_id, since=run.since, until=run.until)
    splits = split_task(
        run.home,
        run.split,
        run_id,
        protocols=run.protocols,
        seed=run.seed,
        ids_are_numbers=run.dataset.id_order == "number",
        given_files=_train_and_test(ingested.file_ids) if run.split_files else None,
        threshold=run.binarize.threshold,
        since=run.since,
    )
    matrices.share(run.home, splits.digests.values())
    return splits


def _keep_modules() -> None:
    """Keep the project's modules for as long as Prefect keeps the flow that runs, which is to the end of the process.

    Python empties the modules that are alive when it ends. One that is gone it cannot empty, although functions of it
    may be left: Prefect's event loops, which run to the end, keep the flow run's context, and so the flow, what it
    calls, and the types in those functions' annotations. DuckDB's binding reports its own among them as leaked, in a
    page on stderr.
    """
    if run := FlowRunContext.get():
        run.flow.modules = [module for name, module in sys.modules.items() if name.partition(".")[0] in ROOMS]


def _train_and_test(file_ids: tuple[int, ...]) -> tuple[tuple[int], tuple[int]]:
    if len(file_ids) != 2 or len(set(file_ids)) != 2:
        raise InputError("--split-files: TRAIN and TEST must be two different logs, one file each.")
    train, test = file_ids
    return (train,), (test,)


def _has_events(run: RunSettings) -> bool:
    if not run.home.warehouse.exists():
        return False
    with warehouse.connect(run.home) as connection:  # makes the tables, where a run was killed before it had
        return connection.execute("select count(*) > 0 from operations.log_files").fetchone()[0]


def closing_words(published: Published) -> str:
    """What a command says at its end: the main table, and where the rest is."""
    lines = [main_table.plain(published.table), "", f"Tables: {published.folder}", f"Report: {published.report}"]
    if published.decision and not published.decision.promoted:
        lines.append(f"Warning: {published.decision.sentence}")
    return "\n".join(lines)
