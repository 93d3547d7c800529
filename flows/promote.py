"""Show the publications and decisions, or publish another model or an earlier publication."""

import uuid
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from oneclass.flows.commands import run_as_program
from oneclass.flows.parameters import DatasetParameters
from oneclass.tasks.errors import InputError


@dataclass(frozen=True, kw_only=True)
class PromoteParameters(DatasetParameters):
    """Parameters of `flows.promote`.

    Attributes:
        model: publish this model of the latest evaluated run, fitted on every edge, whatever the gates say
        rollback: publish the publication of this run again; without a run, the previous one
    """

    model: str | None = None
    rollback: Annotated[list[str] | None, Parameter(consume_multiple=(0, 1))] = None


def promote(given: PromoteParameters) -> str:
    """Show the current publication, the others and the last decisions; publish another model, or roll back."""
    from oneclass.flows import prefect_server
    from oneclass.tasks import home_page
    from oneclass.tasks.orchestration import artifacts
    from oneclass.tasks.publish import manual
    from oneclass.tasks.settings import check_model
    from oneclass.tasks.stores import runs

    dataset_home, _ = given.find_home()
    if given.model is not None and given.rollback is not None:
        raise InputError("--model and --rollback: only one of them at a time.")
    if not dataset_home.warehouse.exists():
        raise InputError(f"{dataset_home.warehouse}: does not exist. Run flows.backfill on {given.dataset} first.")
    if given.model is not None:
        check_model(given.model)
    if given.model is not None or given.rollback is not None:
        run_id = str(uuid.uuid4())
        with runs.record_run(dataset_home, run_id, "promote", vars(given)) as earlier:
            if not prefect_server.explain_unreachable():  # otherwise the next night does
                artifacts.sync_run_states(earlier)
            if given.model is not None:
                manual.promote_model(dataset_home, run_id, given.model)
            else:
                manual.roll_back(dataset_home, run_id, next(iter(given.rollback or ()), None))
        home_page.write_home_page(dataset_home)
    return manual.format_status(dataset_home)


if __name__ == "__main__":
    run_as_program("promote")
