"""Sweep: the refits behind the figures that vary a model's settings; the report shows them when they are there.

python -m flows.sweep --dataset ml-1m --source ratings.csv --sweep paired_symbols_r
"""

import argparse
import logging
import uuid
from typing import Any

from prefect import flow
from prefect.runtime import flow_run

from flows import command_line
from flows.sequence import check, prepare, run_name
from flows.settings import RunSettings, resolve
from tasks import sweep as sweeps
from tasks.errors import InputError
from tasks.protocols import PROTOCOLS
from tasks.report import report_task
from tasks.stores import runs, warehouse
from tasks.sweep import SWEEPS, Result, refit_task

logger = logging.getLogger("flows.sweep")  # also when it is run as a command, where __name__ is another


@flow(name="sweep", flow_run_name=run_name)
def sweep(
    dataset: str,
    sweep: list[str] | None = None,
    source: list[str] | None = None,
    home: str | None = None,
    config: list[str] | None = None,
    settings: dict[str, Any] | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> dict[str, list[Result]]:
    """Ingest, binarize and split, then refit; the results by sweep. The parameters are the command's flags."""
    names = sweeps.check_names(sweep or [])
    run = _resolved(
        names,
        dataset=dataset,
        source=source or (),
        home=home,
        config=config or (),
        settings=settings or {},
        seed=seed,
        threads=threads,
    )
    run_id = str(flow_run.id or uuid.uuid4())
    with runs.recorded(run.home, run_id, "sweep", run.describe() | {"sweeps": names}):
        digests = prepare(run, run_id).digests
        results = {name: _swept(run, run_id, name, digests) for name in names}
        with warehouse.connect(run.home, read_only=True) as connection:
            latest = runs.latest_evaluated(connection)
        if latest:
            report_task(run.home, latest)  # the page of that run, now with the sweeps
    return results


def _resolved(names: list[str], **parameters: Any) -> RunSettings:
    """The run's settings, with the models and protocols that the sweeps need."""
    models = dict.fromkeys(SWEEPS[name].model for name in names)
    protocols = dict.fromkeys(SWEEPS[name].protocol for name in names)
    return resolve(**parameters, models=list(models), protocols=list(protocols))


def _swept(run: RunSettings, run_id: str, name: str, digests: dict[str, str]) -> list[Result]:
    """Every refit of one sweep, then its results in one transaction."""
    of_sweep = SWEEPS[name]
    if of_sweep.protocol not in digests:
        raise InputError(f"{name}: {of_sweep.protocol} has no edge to train on; the log is too small to sweep over.")
    chosen = sweeps.settings_of(of_sweep, run.models[of_sweep.model])
    results: list[Result] = []
    for place, settings in enumerate(chosen):
        logger.info("%s: refit %d of %d, %s", name, place + 1, len(chosen), sweeps.label(name, place))
        results += refit_task(
            run.home,
            run_id,
            name=name,
            place=place,
            matrices_digest=digests[of_sweep.protocol],
            settings=settings,
            seed=run.seed,
        )
    sweeps.record(run.home, run_id, name, results)
    return results


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    parser = command_line.parser("flows.sweep", "The refits behind the figures that vary a model's settings.")
    command_line.add_logs(parser)
    parser.set_defaults(split_files=[])
    parser.add_argument(
        "--sweep",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help=f"some of {', '.join(SWEEPS)}; all by default",
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command; its exit status."""
    given = parser().parse_args(arguments)

    def command() -> str:
        if given.split_files:
            raise InputError("--split-files: sweeps are judged by the protocols that split a log; name it by --source.")
        parameters = {
            "dataset": given.dataset,
            "source": given.source,
            **command_line.common_parameters(given),
        }
        names = sweeps.check_names(given.sweep)
        check(_resolved(names, **parameters))
        return closing_words(sweep(**parameters, sweep=names))

    return command_line.run(command, debug=given.debug)


def closing_words(results: dict[str, list[Result]]) -> str:
    """A line a refit and score: its main metric over all users, and the seconds of the fit."""
    lines = []
    for name, of_sweep in results.items():
        metric = PROTOCOLS[SWEEPS[name].protocol].judged_by
        lines += [f"{name}, {SWEEPS[name].protocol}, {metric}:"]
        overall = [one for one in of_sweep if one.metric == metric and one.degree_low is None]
        of_refit = len(overall) // len(SWEEPS[name].settings)
        for place, one in enumerate(overall):
            what = sweeps.label(name, place // of_refit)
            value = f"{one.value:.4f}" if one.standard_error is None else f"{one.value:.4f} ± {one.standard_error:.4f}"
            lines.append(f"  {what:36} {one.score:18} {value:16} {one.seconds:8.1f} s")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
