"""Search a model's settings and write the best to a file for `--config`."""

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oneclass.flows.commands import run_as_program
from oneclass.flows.parameters import (
    BackfillParameters,
    LogParameters,
    RunParameters,
    flow_with_parameters,
)
from oneclass.tasks.errors import InputError, OneclassError

if TYPE_CHECKING:
    from oneclass.flows.settings import RunSettings
    from oneclass.tasks.settings import SearchSpace

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
    from oneclass.flows.run_hooks import prepare_run

    return prepare_run(given, lambda run: resolve_search_space(run, given))


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


def tune(given: TuneParameters) -> str:
    """Search a model's settings on validation users; the test part is not read.

    What is named in --set stays fixed; the search begins at the data set's own settings, or those of --config.
    """
    from prefect import flow

    from oneclass.flows.pipeline import format_run_name

    @flow(name="tune", flow_run_name=format_run_name)
    @flow_with_parameters(TuneParameters)
    def search(given: TuneParameters) -> str:
        """Ingest, binarize and split, then fit and evaluate until the study has `trials` trials."""
        return _search_settings(given)

    return search(**vars(given))


def _search_settings(given: TuneParameters) -> str:
    """Search the settings, and return the best trials and the file of the best settings as text.

    Raises:
        InputError: a wrong argument, or a log too small to tune on.
        OneclassError: every trial failed.
    """
    from oneclass.flows.pipeline import build_splits, run_context
    from oneclass.flows.run_hooks import prepared
    from oneclass.tasks.orchestration import reconcile
    from oneclass.tasks.protocols import choose_publish_protocol, describe_folds, find_validation_splits, list_splits
    from oneclass.tasks.tuning.search import Search, suggest_trial
    from oneclass.tasks.tuning.study import open_study, write_best_settings
    from oneclass.tasks.tuning.trial import log_trial, run_trial

    run, run_id = prepared.get(), reconcile.current_run_id()
    assert run
    with run_context(run, run_id, "tune"):
        digests = build_splits(run, run_id).digests
        protocol = given.protocol or choose_publish_protocol(run.publish.protocol, digests) or run.protocols[0]
        if not list_splits(protocol, digests):
            raise InputError(f"{protocol}: no edge is left to train on; the log is too small to tune on.")
        judged_on = tuple(digests[split] for split in find_validation_splits(protocol, digests))
        start, space = run.models[given.model], resolve_search_space(run, given, protocol)
        search = Search(given.model, protocol, judged_on, start, space, run.seed)
        train, users = search.load_folds(run.home)[0].train, search.count_users(run.home)
        study = open_study(run.home, search)
        by, names = f"{search.metric} of {users:,} validation users{describe_folds(len(judged_on))}", ", ".join(space)
        logger.info("tuning %s by %s (%s), over %s", given.model, by, protocol, names)
        if study.trials:
            logger.info("the study has %d trials already, of %d", len(study.trials), given.trials)
        fixed = start.model_fields_set - set(run.dataset.models.get(given.model, {}))
        file = write_best_settings(run.home, search, study.trials, fixed, users)
        while len(ended := study.trials) < given.trials:
            study.add_trial(run_trial(run.home, search, suggest_trial(search, ended, train)))
            log_trial(search, study.trials)
            file = write_best_settings(run.home, search, study.trials, fixed, users)
        if file is None:
            note = study.trials[-1].user_attrs["note"]
            raise OneclassError(f"tune: every trial of {given.model} failed. The last one: {note}")
    return f"{file.read_text()}\nTake these settings with --config {file}"


if __name__ == "__main__":
    run_as_program("tune")
