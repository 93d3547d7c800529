"""Great Expectations' Data Docs on the contracts of a warehouse."""

import json
from pathlib import Path
from typing import Any

from oneclass.data_contracts import STAGES, docs
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.protocols import PROTOCOLS
from oneclass.tasks.settings import restore_settings
from oneclass.tasks.stores import runs, warehouse
from oneclass.tasks.stores.home import Home


def build_data_docs(home: Home, dataset: Dataset) -> Path:
    """Write the pages to `<home>/<dataset>/data_docs/`.

    Returns:
        The page to open.

    Raises:
        InputError: there is no warehouse yet.
    """
    if not home.warehouse.exists():
        raise InputError(f"{home.warehouse}: no such warehouse. Run the backfill of {dataset.name} first.")
    # Opened for writing, which migrates the tables of an earlier version.
    with home.writing(), warehouse.open_warehouse(home) as connection:
        run_id = runs.find_latest_evaluated(connection)
        chosen = "select settings from operations.runs where run_id = ?"
        (settings,) = warehouse.fetch_row(connection, chosen, [run_id]) if run_id else ("{}",)
        return docs.build(
            connection, _contract_parameters(dataset, json.loads(settings), run_id or ""), home.folder / "data_docs"
        )


def _contract_parameters(dataset: Dataset, settings: dict[str, Any], run_id: str) -> dict[str, dict[str, Any]]:
    """Return the contract parameters of a run by stage, from its recorded settings."""
    ingest, binarize, split, publish = (
        restore_settings(name, settings.get(name, {})) for name in ("ingest", "binarize", "split", "publish")
    )
    protocols = settings.get("protocols", [])
    values = {
        "ingest": {
            **{
                name: getattr(dataset, name)
                for name in ("value_min", "value_max", "max_reject_share", "max_future_days")
            },
            "fresh_within_hours": ingest.fresh_within_hours,
            "max_top_users_share": ingest.max_top_users_share,
        },
        "binarize": {**binarize.model_dump(), "since": settings.get("since"), "until": settings.get("until")},
        "split": {
            **split.model_dump(),
            "seed": settings.get("seed", 0),
            **{name: name in protocols for name in PROTOCOLS},
        },
        "publish": {"top_n": publish.top_n},
    }
    return {stage: {"run_id": run_id, **values.get(stage, {})} for stage in STAGES}
