"""Search a model's settings and write the best to a file for `--config`."""

import uuid
from dataclasses import dataclass, field
from typing import Any

from oneclass.flows.commands import run_as_program
from oneclass.flows.parameters import Assignments, Count, DatasetParameters
from oneclass.tasks.errors import InputError


@dataclass(frozen=True, kw_only=True)
class TuneParameters(DatasetParameters):
    """Parameters of `flows.tune`.

    Attributes:
        model: the model to tune
        trials: trials in all, those of earlier commands included, so that a command that was cut off can be repeated
        protocol: strong_generalization (by ndcg@100 of its validation users), leave_one_out (mean_rank of an edge a
            user, cut from the training edges), next_events or given (ndcg@100, ndcg@20 of the training edges that
            split.validation cuts off); by default the one that chooses what is published
        settings: settings of the model that stay fixed, such as wmf.factors=64
    """

    model: str
    trials: Count = 50
    protocol: str | None = None
    settings: Assignments = field(default_factory=dict[str, Any])


def tune(given: TuneParameters) -> str:
    """Search a model's settings on the validation users of the latest run's splits; no test part is read.

    The search begins at the settings in the data set's file.
    """
    from oneclass.flows.settings import nest_keys
    from oneclass.tasks.settings import check_model, check_protocol, validate_settings
    from oneclass.tasks.stores import runs
    from oneclass.tasks.tuning.study import load_search, run_study

    dataset_home, dataset = given.find_home()
    check_model(given.model)
    if given.protocol is not None:
        check_protocol(given.protocol)
    fixed = nest_keys(given.settings)
    if others := fixed.keys() - {given.model}:
        raise InputError(f"--set: {others.pop()} is not {given.model}, whose settings are searched.")
    chosen = fixed.get(given.model, {})
    start = validate_settings(given.model, {**dataset.models.get(given.model, {}), **chosen})
    if not dataset_home.warehouse.exists():
        raise InputError(f"{dataset_home.warehouse}: does not exist. Run flows.backfill on {given.dataset} first.")
    with runs.record_run(dataset_home, str(uuid.uuid4()), "tune", vars(given)):
        search = load_search(dataset_home, given.model, start, chosen, given.protocol)
        file = run_study(dataset_home, search, given.trials, set(chosen))
    return f"{file.read_text()}\nTake these settings with --config {file}"


if __name__ == "__main__":
    run_as_program("tune")
