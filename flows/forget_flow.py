"""The flow `forget`: make everything anew, with the settings of the last run, after users were removed."""

import json
import logging
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from prefect import flow

from oneclass.flows.parameters import ForgetParameters
from oneclass.flows.pipeline import format_run_name, run_pipeline
from oneclass.flows.prepare import hand_over, prepared_run
from oneclass.flows.settings import RunSettings, resolve_limits, split_file_pair
from oneclass.tasks import datasets
from oneclass.tasks.cluster import ClusterSettings
from oneclass.tasks.errors import InputError, ModelsFailed, NothingToPublish
from oneclass.tasks.forget.stage import certify_removal, remove_users
from oneclass.tasks.ingest import file_registry
from oneclass.tasks.ingest.attributes import read_titles
from oneclass.tasks.publish.stage import Published
from oneclass.tasks.settings import STAGE_SETTINGS, check_model, restore_settings, validate_settings
from oneclass.tasks.stores import erasures, home, publications, runs, warehouse
from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)


@flow(name=erasures.FLOW, flow_run_name=format_run_name)
def forget(dataset: str) -> Published:
    """Publish what the events in the warehouse give, after users were removed from it."""
    run = prepared_run()
    assert run is not None and run.dataset.name == dataset  # the command prepares it
    return run_pipeline(run, erasures.FLOW)


def forget_users(given: ForgetParameters, run: RunSettings | None) -> str:
    """Remove the users, publish the remaining events, delete earlier publications, and return what to print.

    Args:
        run: of `restore_run`.

    Raises:
        ModelsFailed: as a run.
    """
    dataset = datasets.load_dataset(given.dataset, home.resolve_root(given.home))
    root, limits = home.resolve_root(given.home), resolve_limits(given.threads, given.memory)
    dataset_home = run.home if run else Home(root, given.dataset, limits)
    is_empty = not remove_users(dataset_home, dataset, given.users)
    run_id, error = None, None
    if run is not None and not is_empty:
        before = publications.load_current(dataset_home).get("run_id")
        with hand_over(run):
            try:
                forget(dataset.name)
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


def restore_run(given: ForgetParameters) -> RunSettings | None:
    """Build the settings of the run that rebuilds: those of the last evaluated run; None if nothing was published.

    Raises:
        InputError: the data set is simulated, or what is published cannot be made anew.
    """
    dataset = datasets.load_dataset(given.dataset, home.resolve_root(given.home))
    dataset_home = Home(home.resolve_root(given.home), given.dataset, resolve_limits(given.threads, given.memory))
    stored = _load_settings(dataset_home)
    if stored is None:
        if dataset_home.published.exists():
            raise InputError(f"{dataset_home.published}: no run made it. Run flows.backfill first, then forget.")
        return None
    if dataset.name == "demo" and not stored["sources"] and not stored["split_files"]:
        raise InputError("demo: every run simulates its log anew, so there is nobody to forget.")
    stages = {name: restore_settings(name, stored.get(name, {})) for name in STAGE_SETTINGS}
    models, changed = {}, {}
    for name, section in stored["models"].items():
        check_model(name)
        models[name] = restore_settings(name, section)
        default = validate_settings(name, dataset.models.get(name, {}))
        changed[name] = [field for field, value in models[name] if value != getattr(default, field)]
    file_registry.find_file_ids(dataset_home, list(map(Path, stored["split_files"])))
    if stages["publish"].titles:
        read_titles(Path(stages["publish"].titles), dataset)
    return RunSettings(
        home=replace(dataset_home, files=stages["files"]),
        dataset=dataset,
        sources=tuple(map(Path, stored["sources"])),
        split_files=split_file_pair(stored["split_files"]),
        protocols=tuple(stored["protocols"]),
        optional_protocols=tuple(stored.get("optional_protocols", ())),
        models=models,
        optional_models=tuple(stored.get("optional_models", ())),
        given={name: fields for name, fields in changed.items() if fields},
        **stages,
        cluster=ClusterSettings(given.workers, given.dask, given.dask_unencrypted),
        seed=stored["seed"],
        since=date.fromisoformat(stored["since"]) if stored["since"] else None,
        until=date.fromisoformat(stored["until"]) if stored["until"] else None,
        rebuild=True,
    )


def _load_settings(dataset_home: Home) -> dict[str, Any] | None:
    """Load the settings of the last evaluated run, if there is one that published recommendations."""
    if not dataset_home.warehouse.exists():
        return None
    with runs.lock_data_set(dataset_home), warehouse.open_warehouse(dataset_home) as connection:
        rows = warehouse.select(connection, "runs/evaluated_settings")["settings"].to_list()
    settings = [json.loads(text) for text in rows]
    whole = [of_run for of_run in settings if set(of_run["protocols"]) - {"given"}]
    return next(iter([*whole, *settings]), None)
