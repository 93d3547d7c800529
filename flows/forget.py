"""Remove users from a home, and publish what the remaining events give."""

import json
import logging
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from oneclass.flows.commands import run_as_program
from oneclass.flows.parameters import BackfillParameters, DatasetParameters
from oneclass.tasks.errors import InputError, ModelsFailed, NothingToPublish

if TYPE_CHECKING:
    from oneclass.flows.settings import RunSettings
    from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ForgetParameters(DatasetParameters):
    """Parameters of `flows.forget`; the users are no parameter of its flow, as Prefect stores those.

    Attributes:
        users: the users' ids, as they stand in the logs
    """

    users: Annotated[list[str], Parameter(name="--user")]


def forget(given: ForgetParameters) -> str:
    """Remove users from a home, and publish what the remaining events give, with the settings of the last run.

    Cut off at any moment, the same command goes on from there; until then no other run works on the data set.
    """
    from prefect import flow

    from oneclass.flows.pipeline import format_run_name, run_pipeline
    from oneclass.flows.run_hooks import prepared
    from oneclass.tasks.forget.stage import certify_removal, remove_users
    from oneclass.tasks.publish.stage import Published
    from oneclass.tasks.stores import erasures, publications

    dataset_home, dataset = given.find_home()
    is_empty = not remove_users(dataset_home, dataset, given.users)
    run, run_id, error = prepared.get(), None, None
    if run is not None and not is_empty:

        @flow(name=erasures.FLOW, flow_run_name=format_run_name)
        def rebuild(dataset: str) -> Published:
            """Publish what the events in the warehouse give, after users were removed from it."""
            return run_pipeline(run, erasures.FLOW)

        before = publications.load_current(dataset_home).get("run_id")
        try:
            rebuild(dataset.name)
        except ModelsFailed as failed:  # everything else was published
            error = failed
        except NothingToPublish as nothing:
            logger.warning("%s Nothing is published any more.", nothing)
        run_id = publications.load_current(dataset_home).get("run_id")
        run_id = None if run_id == before else run_id  # that one has the users
    certificate = certify_removal(dataset_home, run_id)
    if error:
        raise error
    return f"Forgotten. Certificate: {certificate}"


def prepare(given: ForgetParameters) -> "RunSettings | None":
    """Build the settings of the run that rebuilds: those of the last evaluated run; None if nothing was published.

    Raises:
        InputError: the data set is simulated, or what is published cannot be made anew.
    """
    from oneclass.flows.settings import resolve_settings
    from oneclass.tasks.ingest import file_registry
    from oneclass.tasks.ingest.attributes import read_titles
    from oneclass.tasks.settings import STAGE_SETTINGS, restore_settings

    dataset_home, dataset = given.find_home()
    stored = _load_settings(dataset_home)
    if stored is None:
        if dataset_home.published.exists():
            raise InputError(f"{dataset_home.published}: no run made it. Run flows.backfill first, then forget.")
        return None
    if dataset.name == "demo" and not stored["sources"] and not stored["split_files"]:
        raise InputError("demo: every run simulates its log anew, so there is nobody to forget.")
    since, until = (date.fromisoformat(stored[name]) if stored[name] else None for name in ("since", "until"))
    same = {name: stored[name] for name in ("protocols", "split_files", "seed")}
    same |= {"source": stored["sources"], "models": list(stored["models"]), "since": since, "until": until}
    default = resolve_settings(BackfillParameters(dataset=given.dataset, home=given.home, **same))
    stages = {name: restore_settings(name, stored.get(name, {})) for name in STAGE_SETTINGS}
    models = {name: restore_settings(name, section) for name, section in stored["models"].items()}
    changed = {
        name: [field for field, value in settings if value != getattr(default.models[name], field)]
        for name, settings in models.items()
    }
    file_registry.find_file_ids(dataset_home, default.split_files)
    if stages["publish"].titles:
        read_titles(Path(stages["publish"].titles), dataset)
    return replace(
        default,
        home=replace(dataset_home, files=stages["files"]),
        models=models,
        optional_models=tuple(stored.get("optional_models", ())),
        optional_protocols=tuple(stored.get("optional_protocols", ())),
        given={name: fields for name, fields in changed.items() if fields},
        rebuild=True,
        **stages,
    )


def _load_settings(dataset_home: "Home") -> dict[str, Any] | None:
    """Load the settings of the last evaluated run, if there is one that published recommendations."""
    from oneclass.tasks.stores import runs, warehouse

    if not dataset_home.warehouse.exists():
        return None
    with runs.lock_data_set(dataset_home), warehouse.open_warehouse(dataset_home) as connection:
        rows = runs.list_evaluated_settings(connection)
    settings = [json.loads(text) for text in rows]
    whole = [of_run for of_run in settings if set(of_run["protocols"]) - {"given"}]
    return next(iter([*whole, *settings]), None)


if __name__ == "__main__":
    run_as_program("forget")
