"""The flow `sweep`: a model fitted again and again with some settings varied; the report shows what came of it."""

import logging

from prefect import flow
from prefect.runtime import flow_run

from oneclass.flows.parameters import SweepParameters, flow_with_parameters
from oneclass.flows.pipeline import build_splits, format_run_name, run_context
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
    """Ingest, binarize and split, then refit; the results by sweep.

    Raises:
        InputError: a wrong argument, or a log too small to sweep over.
    """
    run, names = plan_sweeps(given)
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
            report_task(run.home, latest)  # the page of that run, now with the sweeps
    return results


def plan_sweeps(given: SweepParameters) -> tuple[RunSettings, list[str]]:
    """The run's settings, with the models and protocols that the sweeps need, and the sweeps' names.

    Raises:
        InputError: a wrong argument.
    """
    names = sweeps.check_sweep_names(given.sweep)
    models = list(dict.fromkeys(SWEEPS[name].model for name in names))
    protocols = list(dict.fromkeys(SWEEPS[name].protocol for name in names))
    return resolve_settings(given.to_backfill(models=models, protocols=protocols)), names


def _run_sweep(
    run: RunSettings, run_id: str, name: str, digests: dict[str, str], executor: Executor
) -> list[SweepResult]:
    """Every refit of one sweep, then its results in one transaction."""
    of_sweep = SWEEPS[name]
    if of_sweep.protocol not in digests:
        raise InputError(f"{name}: {of_sweep.protocol} has no edge to train on; the log is too small to sweep over.")
    chosen = sweeps.refit_settings(of_sweep, run.models[of_sweep.model])
    log = {"matrices_digest": digests[of_sweep.protocol], "seed": run.seed}
    pending = [
        sweeps.submit_refit(executor, run.home, name=name, place=place, settings=settings, **log)
        for place, settings in enumerate(chosen)
    ]
    results: list[SweepResult] = []
    for place, refit in enumerate(pending):
        logger.info("%s: refit %d of %d, %s", name, place + 1, len(chosen), sweeps.refit_label(name, place))
        results += refit_task(run.home, run_id, name=name, place=place, pending=refit)
    sweeps.record_sweep(run.home, run_id, name, results)
    return results


def format_results(results: dict[str, list[SweepResult]]) -> str:
    """A line for each refit and score: its main metric over all users, and the seconds that the fit took."""
    lines = []
    for name, of_sweep in results.items():
        metric = PROTOCOLS[SWEEPS[name].protocol].evaluation_metrics
        lines += [f"{name}, {SWEEPS[name].protocol}, {metric}:"]
        overall = [one for one in of_sweep if one.metric == metric and one.degree_low is None]
        of_refit = len(overall) // len(SWEEPS[name].settings)
        wide = max(len(sweeps.refit_label(name, place)) for place in range(len(SWEEPS[name].settings)))
        for place, one in enumerate(overall):
            what = sweeps.refit_label(name, place // of_refit)
            value = f"{one.value:.4f}" if one.standard_error is None else f"{one.value:.4f} ± {one.standard_error:.4f}"
            lines.append(f"  {what:{wide}} {one.score:18} {value:16} {one.seconds:8.1f} s")
    return "\n".join(lines)
