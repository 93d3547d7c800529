"""The flow `sweep`: refit a model with some settings varied, for figures of the report."""

import logging
from dataclasses import replace
from functools import partial

from prefect import flow
from prefect.runtime import flow_run

from oneclass.flows.parameters import BackfillParameters, SweepParameters, flow_with_parameters
from oneclass.flows.pipeline import build_splits, format_run_name, run_context
from oneclass.flows.prepare import prepared_run
from oneclass.flows.settings import RunSettings, resolve_settings
from oneclass.tasks import cluster
from oneclass.tasks import sweep as sweeps
from oneclass.tasks.cluster import Executor
from oneclass.tasks.errors import InputError
from oneclass.tasks.orchestration import reconcile
from oneclass.tasks.protocols import PROTOCOLS
from oneclass.tasks.report import report_task
from oneclass.tasks.stores import runs, warehouse
from oneclass.tasks.sweep import SWEEPS, SweepResult, refit_task

logger = logging.getLogger(__name__)


@flow(name="sweep", flow_run_name=format_run_name)
@flow_with_parameters(SweepParameters)
def sweep(given: SweepParameters) -> dict[str, list[SweepResult]]:
    """Ingest, binarize and split, then refit. Returns the results by sweep.

    Raises:
        InputError: a wrong argument, or a log too small to sweep over.
    """
    names = sweeps.check_sweep_names(given.sweep)
    run = prepared_run() or resolve_settings(sweep_parameters(given))
    # A sweep refits on one split.
    run = replace(run, split=run.split.model_copy(update={"min_validation_users": 0}))
    run_id = reconcile.current_run_id()
    with (
        run_context(run, run_id, "sweep", sweeps=names),
        cluster.open_executor(run.cluster, run.home, flow_run.id) as executor,
    ):
        digests = build_splits(run, run_id).digests
        results = {name: _run_sweep(run, run_id, name, digests, executor) for name in names}
        with warehouse.open_warehouse(run.home, read_only=True) as connection:
            latest = runs.find_latest_evaluated(connection)
        if latest:
            report_task(run.home, latest)  # rewritten with the sweeps
    return results


def sweep_parameters(given: SweepParameters) -> BackfillParameters:
    """Return the backfill parameters with the models and protocols of the sweeps.

    Raises:
        InputError: a sweep is unknown.
    """
    chosen = [SWEEPS[name] for name in sweeps.check_sweep_names(given.sweep)]
    models = list(dict.fromkeys(one.model for one in chosen))
    return given.to_backfill(models=models, protocols=list(dict.fromkeys(one.protocol for one in chosen)))


def _run_sweep(
    run: RunSettings, run_id: str, name: str, digests: dict[str, str], executor: Executor
) -> list[SweepResult]:
    """Refit every setting of one sweep, then record the results in one transaction."""
    settings_sweep = SWEEPS[name]
    if settings_sweep.protocol not in digests:
        raise InputError(
            f"{name}: {settings_sweep.protocol} has no edge to train on; the log is too small to sweep over."
        )
    chosen = sweeps.refit_settings(settings_sweep, run.models[settings_sweep.model])
    submit = partial(
        sweeps.submit_refit, executor, run.home, matrices_digest=digests[settings_sweep.protocol], seed=run.seed
    )
    pending = [submit(name=name, place=number, settings=settings) for number, settings in enumerate(chosen)]
    results: list[SweepResult] = []
    for number, refit in enumerate(pending):
        logger.info("%s: refit %d of %d, %s", name, number + 1, len(chosen), sweeps.refit_label(name, number))
        results += refit_task(run.home, run_id, name=name, place=number, pending=refit)
    sweeps.record_sweep(run.home, run_id, name, results)
    return results


def format_results(results: dict[str, list[SweepResult]]) -> str:
    """Format a line per refit and score: the main metric over all users, and the seconds of the fit."""
    lines = []
    for name, sweep_results in results.items():
        metric = PROTOCOLS[SWEEPS[name].protocol].main_metric
        lines += [f"{name}, {SWEEPS[name].protocol}, {metric}:"]
        overall = [result for result in sweep_results if result.metric == metric and result.degree_low is None]
        scores_per_refit = len(overall) // len(SWEEPS[name].settings)
        width = max(len(sweeps.refit_label(name, number)) for number in range(len(SWEEPS[name].settings)))
        for number, result in enumerate(overall):
            label = sweeps.refit_label(name, number // scores_per_refit)
            value = (
                f"{result.value:.4f}"
                if result.standard_error is None
                else f"{result.value:.4f} ± {result.standard_error:.4f}"
            )
            lines.append(f"  {label:{width}} {result.score:18} {value:16} {result.seconds:8.1f} s")
    return "\n".join(lines)
