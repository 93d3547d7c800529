"""The flow `tune`: trials of a model's settings, evaluated on validation users or edges only."""

import logging
import math
import time
from dataclasses import dataclass
from pathlib import Path

from prefect import flow
from prefect.runtime import flow_run

from oneclass.flows import cli
from oneclass.flows.parameters import TuneParameters, flow_with_parameters
from oneclass.flows.pipeline import build_splits, format_run_name, run_context
from oneclass.flows.prepare import prepared_run
from oneclass.flows.settings import RunSettings, resolve_search_space, resolve_settings
from oneclass.tasks import cluster
from oneclass.tasks.cluster import Executor
from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.orchestration import reconcile
from oneclass.tasks.protocols import choose_publish_protocol, describe_folds, find_validation_splits, list_splits
from oneclass.tasks.tuning.search import Search, suggest_trial
from oneclass.tasks.tuning.study import format_trials, open_study, write_best_settings
from oneclass.tasks.tuning.trial import log_trial, submit_trial

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TuneResult:
    """The file of the best settings, and the best trials as text."""

    file: Path
    table: str


@flow(name="tune", flow_run_name=format_run_name)
@flow_with_parameters(TuneParameters)
def tune(given: TuneParameters) -> TuneResult:
    """Ingest, binarize and split, then fit and evaluate until the study has `trials` trials.

    Raises:
        InputError: a wrong argument, or a log too small to tune on.
        OneclassError: every trial failed.
    """
    run = prepared_run() or resolve_settings(given.to_backfill())
    run_id = reconcile.current_run_id()
    context = run_context(run, run_id, "tune", trials=given.trials, batch_size=given.batch_size)
    with context, cluster.open_executor(run.cluster, run.home, flow_run.id) as executor:
        digests = build_splits(run, run_id).digests
        by_default = choose_publish_protocol(run.publish.protocol, digests)
        chosen = given.protocol or by_default or run.protocols[0]
        if not list_splits(chosen, digests):
            raise InputError(f"{chosen}: no edge is left to train on; the log is too small to tune on.")
        search = Search(
            given.model,
            chosen,
            tuple(digests[split] for split in find_validation_splits(chosen, digests)),
            run.models[given.model],
            resolve_search_space(run, given, chosen),
            run.seed,
            batch_size=given.batch_size,
        )
        return _run_search(run, search, given, executor)


def _run_search(run: RunSettings, search: Search, given: TuneParameters, executor: Executor) -> TuneResult:
    """Run rounds of trials until the study has the requested number or the time limit is reached."""
    train, users = search.load_folds(run.home)[0].train, search.count_users(run.home)
    study, until = open_study(run.home, search), time.monotonic() + 60 * (given.timeout or math.inf)
    _log_search(search, len(study.trials), users, given.trials)
    fixed = search.start.model_fields_set - set(run.dataset.models.get(search.model, {}))
    command = cli.to_command_line("flows.tune", given)
    file = write_best_settings(run.home, search, study.trials, fixed, users, command)
    while len(ended := study.trials) < given.trials:
        batch_end = (len(ended) // search.batch_size + 1) * search.batch_size
        numbers = range(len(ended), min(batch_end, given.trials))
        batch = [suggest_trial(search, number, ended, train) for number in numbers]
        for call in [submit_trial(executor, run.home, search, trial) for trial in batch]:
            study.add_trial(call.result())
            log_trial(search, study.trials)
            file = write_best_settings(run.home, search, study.trials, fixed, users, command)
        if time.monotonic() > until and len(study.trials) < given.trials:
            logger.info("stopped after %g minutes; the same command goes on from here", given.timeout)
            break
    if file is None:
        note = study.trials[-1].user_attrs["note"]
        raise OneclassError(f"tune: every trial of {search.model} failed. The last one: {note}")
    return TuneResult(file, format_trials(search, study.trials))


def _log_search(search: Search, ended: int, users: int, trials: int) -> None:
    logger.info(
        "tuning %s by %s of %s validation users%s (%s), over %s",
        search.model,
        search.metric,
        f"{users:,}",
        describe_folds(len(search.digests)),
        search.protocol,
        ", ".join(search.space),
    )
    if ended:
        logger.info("the study has %d trials already; %d more to go", ended, max(0, trials - ended))
