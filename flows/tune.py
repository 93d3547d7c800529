"""Tune: search a model's settings on validation users, and leave the best in a file that `--config` takes.

python -m flows.tune --dataset ml-1m --source ratings.csv --model wmf --trials 50
"""

import argparse
import json
import logging
import shlex
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.runtime import flow_run

from flows import command_line
from flows.sequence import check, prepare, run_name
from flows.settings import RunSettings, resolve
from models.catalogue import MODELS
from models.search_space import SearchSpace
from tasks import tuning
from tasks.errors import InputError, OneclassError
from tasks.stores import runs
from tasks.tuning import Search, Study

logger = logging.getLogger("flows.tune")  # also when it is run as a command, where __name__ is another


@dataclass(frozen=True)
class Tuned:
    """What a tuning left: the file of the best settings, and the best trials as text."""

    file: Path
    table: str


@flow(name="tune", flow_run_name=run_name)
def tune(
    dataset: str,
    model: str,
    trials: int = 50,
    protocol: str | None = None,
    source: list[str] | None = None,
    split_files: list[str] | None = None,
    home: str | None = None,
    config: list[str] | None = None,
    settings: dict[str, Any] | None = None,
    seed: int = 0,
    threads: int | None = None,
    timeout: float | None = None,
) -> Tuned:
    """Ingest, binarize and split, then fit and judge until the study has `trials` trials; the command's flags.

    Raises:
        InputError: a wrong argument, or a log too small to tune on.
        OneclassError: every trial failed.
    """
    parameters = {
        "dataset": dataset,
        "source": source or (),
        "split_files": split_files or (),
        "home": home,
        "config": config or (),
        "settings": settings or {},
        "seed": seed,
        "threads": threads,
    }
    run, space = planned(model=model, trials=trials, timeout=timeout, protocol=protocol, **parameters)
    run_id = str(flow_run.id or uuid.uuid4())
    with runs.recorded(run.home, run_id, "tune", run.describe() | {"trials": trials}):
        chosen, digests = run.protocols[0], prepare(run, run_id).digests
        if chosen not in digests:
            raise InputError(f"{chosen}: no edge is left to train on; the log is too small to tune on.")
        search = Search(model, chosen, digests[chosen], run.models[model], space, run.seed)
        return _searched(run, search, trials, timeout)


def planned(
    *, model: str, trials: int, timeout: float | None = None, protocol: str | None = None, **parameters: Any
) -> tuple[RunSettings, SearchSpace]:
    """The settings of the run, and where it searches: the model's declared space without what `settings` fixes.

    Raises:
        InputError: a wrong argument, or a model that has nothing to be searched.
    """
    by_default = () if parameters.get("split_files") else ("strong_generalization",)
    run = resolve(models=[model], protocols=(protocol,) if protocol else by_default, **parameters)
    if trials < 1:
        raise InputError(f"--trials {trials}: must be at least 1.")
    if timeout is not None and timeout <= 0:
        raise InputError(f"--timeout {timeout:g}: must be more than 0 minutes.")
    declared = MODELS[model].Settings.search_space
    if not declared:
        known = [name for name in MODELS if MODELS[name].Settings.search_space]
        raise InputError(f"--model {model}: has no settings to tune. Models that have: {', '.join(known)}.")
    fixed = parameters.get("settings") or {}
    space = {name: where for name, where in declared.items() if f"{model}.{name}" not in fixed}
    if not space:
        raise InputError(f"--set: fixes every setting of {model} that is searched, {', '.join(declared)}.")
    return run, space


def _searched(run: RunSettings, search: Search, trials: int, timeout: float | None) -> Tuned:
    """Trials until the study has as many as were asked for, or the time is up."""
    users = tuning.validation(run.home, search.protocol, search.matrices_digest, search.seed).users
    study, began = Study(run.home, search), time.monotonic()
    study.begin()
    _announce(search, study, users, trials)
    fixed = search.start.model_fields_set - set(run.dataset.models.get(search.model, {}))
    command = _command(flow_run.parameters)
    file = tuning.write(run.home, search, study, fixed, users, command)
    for number in range(len(study.outcomes()) + 1, trials + 1):
        tuning.trial_task(run.home, search, number)
        file = tuning.write(run.home, search, study, fixed, users, command)
        if timeout is not None and time.monotonic() - began > 60 * timeout and number < trials:
            logger.info("%g minutes are over; the same command goes on from here", timeout)
            break
    outcomes = study.outcomes()
    if file is None:
        raise OneclassError(f"tune: every trial of {search.model} failed. The last one: {outcomes[-1].note}")
    return Tuned(file, tuning.table(search, outcomes))


def _announce(search: Search, study: Study, users: int, trials: int) -> None:
    logger.info(
        "tuning %s by %s of %s validation users (%s), over %s",
        search.model,
        search.metric,
        f"{users:,}",
        search.protocol,
        ", ".join(search.space),
    )
    if before := len(study.outcomes()):
        logger.info("the study has %d trials already, %d more to go", before, max(0, trials - before))
    if other := study.other_source():
        logger.warning("%d of its trials were made by another version of models/; their values may differ", other)


def _command(parameters: dict[str, Any]) -> str:
    """The command with these flags."""
    words = ["python", "-m", "flows.tune"]
    for name, value in parameters.items():
        if name == "settings" and value:
            words += ["--set", *(f"{key}={_in_toml(one)}" for key, one in value.items())]
        elif value:
            words += [f"--{name.replace('_', '-')}", *(map(str, value) if isinstance(value, list) else [str(value)])]
    return shlex.join(words)


def _in_toml(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    parser = command_line.parser(
        "flows.tune",
        "Search a model's settings on validation users; the test part is not read. What is named in --set stays "
        "fixed; the search begins at the data set's own settings, or those of --config.",
    )
    command_line.add_logs(parser)
    parser.add_argument("--model", required=True, metavar="NAME", help="the model to tune")
    parser.add_argument(
        "--trials",
        type=int,
        default=50,
        metavar="N",
        help="trials in all, those of earlier commands included, so that a command that was cut off can be repeated "
        "(default 50)",
    )
    parser.add_argument(
        "--protocol",
        metavar="NAME",
        help="strong_generalization (the default; by ndcg@100 of its validation users), leave_one_out (mean_rank of "
        "an edge a user, cut from the training edges), or given (ndcg@20 of a fifth of a user's training edges)",
    )
    parser.add_argument("--timeout", type=float, metavar="MINUTES", help="begin no trial after so long")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command; its exit status."""
    given = parser().parse_args(arguments)

    def command() -> str:
        named = ("dataset", "model", "trials", "protocol", "source", "split_files", "timeout")
        parameters = {**{name: getattr(given, name) for name in named}, **command_line.common_parameters(given)}
        check(planned(**parameters)[0])
        tuned = tune(**parameters)
        return f"{tuned.table}\n\nBest settings: {tuned.file}\nTake them with --config {tuned.file}"

    return command_line.run(command, debug=given.debug)


if __name__ == "__main__":
    raise SystemExit(main())
