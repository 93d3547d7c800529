"""Great Expectations' own pages on the contracts of a warehouse, for those who want them.

    python -m flows.data_docs --dataset ml-1m

The pages load styles and scripts from public hosts; the report needs none, and shows the same results.
"""

import argparse
import os
from pathlib import Path

from data_contracts import docs
from flows import command_line
from tasks import datasets
from tasks.errors import InputError
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
        parameters = {
            "run_id": runs.latest_evaluated(connection) or "",
            "value_min": declared.value_min,
            "value_max": declared.value_max,
            "max_reject_share": declared.max_reject_share,
            "first_file_id": 0,
            "strong_generalization_filtered": True,
        }
        return docs.build(connection, parameters, home.folder / "data_docs")


if __name__ == "__main__":
    raise SystemExit(main())
