"""The command `flows.data_docs`: Great Expectations' Data Docs of a warehouse.

    python -m flows.data_docs --dataset ml-1m

The pages open offline: a section per column, shares of rows, and sample rows of broken rules.
"""

import argparse

from oneclass.flows import cli
from oneclass.flows.parameters import DatasetParameters


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command."""
    description = "Great Expectations' Data Docs of a warehouse as it stands."
    return cli.build_parser("flows.data_docs", description, DatasetParameters)


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    given = parser().parse_args(arguments)

    def command() -> str:
        from oneclass.tasks import data_docs, datasets
        from oneclass.tasks.stores import home

        root = home.resolve_root(given.home)
        dataset = datasets.load_dataset(given.dataset, root)
        return f"Data Docs: {data_docs.build_data_docs(home.Home(root, dataset.name), dataset)}"

    return cli.run_command(command, debug=given.debug)


if __name__ == "__main__":
    cli.run_main(main)
