"""Search a model's settings and write the best to a file for `--config`."""

import json
import logging
import shlex
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from oneclass.flows.commands import run_as_program
from oneclass.flows.parameters import (
    BackfillParameters,
    LogParameters,
    RunParameters,
    find_default,
    flow_with_parameters,
)
from oneclass.tasks.errors import InputError, OneclassError

if TYPE_CHECKING:
    from oneclass.flows.settings import RunSettings
    from oneclass.tasks.settings import SearchSpace
    from oneclass.tasks.tuning.search import Search

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TuneParameters(LogParameters, RunParameters):
    """Parameters of the flow `tune`.

    Attributes:
        model: the model to tune
        trials: trials in all, those of earlier commands included, so that a command that was cut off can be repeated
        protocol: strong_generalization (by ndcg@100 of its validation users), leave_one_out (mean_rank of an edge a
            user, cut from the training edges), next_events or given (ndcg@100, ndcg@20 of the training edges that
            split.validation cuts off); by default the one that chooses what is published (publish.protocol)
    """

    model: str
    trials: int = 50
    protocol: str | None = None

    def to_backfill(self, **more: Any) -> BackfillParameters:
        """Return the backfill parameters of the model and the protocol."""
        protocols = [self.protocol] if self.protocol else []
        return super().to_backfill(models=[self.model], protocols=protocols, **more)


def prepare(given: TuneParameters) -> "RunSettings":
    """Check the run and the search."""
    from oneclass.flows.run_hooks import check_home, scan_sources

    scan_sources(given.to_backfill())
    from oneclass.flows.settings import resolve_settings

    run = resolve_settings(given.to_backfill())
    resolve_search_space(run, given)
    check_home(run)
    return run


def resolve_search_space(run: "RunSettings", given: TuneParameters, protocol: str | None = None) -> "SearchSpace":
    """Return the search space of a tuning run: the model's declared space without the settings that `--set` fixes.

    Args:
        protocol: the one that judges the trials; None if the log will decide which.

    Raises:
        InputError: a wrong argument, or a model without settings to search.
    """
    from oneclass.flows.settings import nest_keys
    from oneclass.tasks.settings import LATEST_PROTOCOLS, build_search_space

    if given.trials < 1:
        raise InputError(f"--trials {given.trials}: must be at least 1.")
    has_later_edges = protocol is None or protocol in LATEST_PROTOCOLS
    recorded = {"order": run.split.order and has_later_edges, "explicit_negatives": run.binarize.explicit_negatives}
    return build_search_space(given.model, fixed=nest_keys(given.settings).get(given.model, {}), **recorded)


def tune(given: TuneParameters, run: "RunSettings") -> str:
    """Search a model's settings on validation users; the test part is not read.

    What is named in --set stays fixed; the search begins at the data set's own settings, or those of --config.
    """
    from prefect import flow

    from oneclass.flows.pipeline import format_run_name

    @flow(name="tune", flow_run_name=format_run_name)
    @flow_with_parameters(TuneParameters)
    def search(given: TuneParameters) -> str:
        """Ingest, binarize and split, then fit and evaluate until the study has `trials` trials."""
        return _search_settings(given, run)

    return search(**vars(given))


def _search_settings(given: TuneParameters, run: "RunSettings") -> str:
    """Search the settings, and return the best trials and the file of the best settings as text.

    Raises:
        InputError: a wrong argument, or a log too small to tune on.
        OneclassError: every trial failed.
    """
    from oneclass.flows.pipeline import build_splits, run_context
    from oneclass.tasks.orchestration import reconcile
    from oneclass.tasks.protocols import choose_publish_protocol, find_validation_splits, list_splits
    from oneclass.tasks.tuning.search import Search

    run_id = reconcile.current_run_id()
    with run_context(run, run_id, "tune", trials=given.trials):
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
        )
        return _run_trials(run, search, given)


def _run_trials(run: "RunSettings", search: "Search", given: TuneParameters) -> str:
    """Run trials until the study has the requested number."""
    from oneclass.tasks.tuning.search import suggest_trial
    from oneclass.tasks.tuning.study import open_study, write_best_settings
    from oneclass.tasks.tuning.trial import log_trial, run_trial

    train, users = search.load_folds(run.home)[0].train, search.count_users(run.home)
    study = open_study(run.home, search)
    _log_search(search, len(study.trials), users, given.trials)
    fixed = search.start.model_fields_set - set(run.dataset.models.get(search.model, {}))
    command = format_command(given)
    file = write_best_settings(run.home, search, study.trials, fixed, users, command)
    while len(ended := study.trials) < given.trials:
        study.add_trial(run_trial(run.home, search, suggest_trial(search, ended, train)))
        log_trial(search, study.trials)
        file = write_best_settings(run.home, search, study.trials, fixed, users, command)
    if file is None:
        note = study.trials[-1].user_attrs["note"]
        raise OneclassError(f"tune: every trial of {search.model} failed. The last one: {note}")
    return f"{file.read_text()}\nTake these settings with --config {file}"


def format_command(given: TuneParameters) -> str:
    """Format the command line that sets these parameters, omitting defaults."""
    words = ["python", "-m", "flows.tune"]
    for parameter in fields(given):
        value = getattr(given, parameter.name)
        if isinstance(value, dict):
            texts = [one if isinstance(one, str) else json.dumps(one) for one in value.values()]
            value = list(map("=".join, zip(value, texts, strict=True)))
        if value != find_default(parameter) and value:
            flag = "set" if parameter.name == "settings" else parameter.name.replace("_", "-")
            words += [f"--{flag}", *map(str, value if isinstance(value, list) else [value])]
    return shlex.join(words)


def _log_search(search: "Search", ended: int, users: int, trials: int) -> None:
    from oneclass.tasks.protocols import describe_folds

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


if __name__ == "__main__":
    run_as_program("tune")
