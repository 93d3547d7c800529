"""Great Expectations' own pages on the contracts of a warehouse, for those who want them.

    python -m flows.data_docs --dataset ml-1m

The pages load styles and scripts from public hosts; the report needs none, and shows the same results.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

from data_contracts import docs
from data_contracts.contracts import STAGES
from flows import command_line
from tasks import datasets
from tasks.binarize import BinarizeSettings
from tasks.datasets import Dataset
from tasks.errors import InputError
from tasks.protocols import PROTOCOLS
from tasks.publish import PublishSettings
from tasks.split import SplitSettings
from tasks.stores import runs, warehouse
from tasks.stores.home import Home


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    parser = argparse.ArgumentParser(
        prog="python -m flows.data_docs", description="Great Expectations' Data Docs of a warehouse as it stands."
    )
    parser.add_argument("--dataset", required=True, metavar="NAME", help="the data set")
    parser.add_argument("--home", metavar="DIR", help="where everything is kept; by default $ONECLASS_HOME, else ./var")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command; its exit status."""
    given = parser().parse_args(arguments)
    root = Path(given.home or os.environ.get("ONECLASS_HOME") or "var")
    return command_line.run(lambda: f"Data Docs: {build(root, given.dataset)}", debug=given.debug)


def build(root: Path, dataset: str) -> Path:
    """Write the pages to `<home>/<dataset>/data_docs/`; the page to open."""
    declared = datasets.load(dataset, root)
    home = Home(root, declared.name)
    if not home.warehouse.exists():
        raise InputError(f"{home.warehouse}: no such warehouse. Run the backfill of {dataset} first.")
    with warehouse.connect(home, read_only=True) as connection:
        run_id = runs.latest_evaluated(connection)
        chosen = "select settings from operations.runs where run_id = ?"
        (settings,) = connection.execute(chosen, [run_id]).fetchone() if run_id else ("{}",)
        return docs.build(connection, _given(declared, json.loads(settings), run_id or ""), home.folder / "data_docs")


def _given(dataset: Dataset, settings: dict[str, Any], run_id: str) -> dict[str, dict[str, Any]]:
    """What the stages of a run gave to their contracts, by stage, from the settings that it was recorded with."""
    binarize = BinarizeSettings(**settings.get("binarize", {}))
    split = SplitSettings(**settings.get("split", {}))
    asked = settings.get("protocols", [])
    values = {
        "ingest": {name: getattr(dataset, name) for name in ("value_min", "value_max", "max_reject_share")},
        "binarize": {**binarize.model_dump(), "since": settings.get("since"), "until": settings.get("until")},
        "split": {**split.model_dump(), "seed": settings.get("seed", 0), **{one: one in asked for one in PROTOCOLS}},
        "publish": {"top_n": PublishSettings(**settings.get("publish", {})).top_n},
    }
    return {stage: {"run_id": run_id, **values.get(stage, {})} for stage in STAGES}


if __name__ == "__main__":
    raise SystemExit(main())
