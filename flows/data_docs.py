"""The command `flows.data_docs`: Great Expectations' own pages on the contracts of a warehouse.

    python -m flows.data_docs --dataset ml-1m

The pages open offline: a section for every column, shares of rows, and sample rows of rules that are broken.
"""

import argparse

from flows import command_line
from flows.parameters import OfDataset


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    description = "Great Expectations' Data Docs of a warehouse as it stands."
    return command_line.parser("flows.data_docs", description, OfDataset)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; its exit status."""
    given = parser().parse_args(arguments)

    def command() -> str:
        from tasks import data_docs, datasets
        from tasks.stores import home

        root = home.root(given.home)
        dataset = datasets.load(given.dataset, root)
        return f"Data Docs: {data_docs.build(home.Home(root, dataset.name), dataset)}"

    return command_line.run(command, debug=given.debug)


if __name__ == "__main__":
    command_line.start(main)
