"""Show how logs would be read, before any run."""

from dataclasses import dataclass

from oneclass.flows.commands import run_as_program
from oneclass.flows.parameters import ColumnParameters


@dataclass(frozen=True, kw_only=True)
class InspectParameters(ColumnParameters):
    """Parameters of `flows.inspect`.

    Attributes:
        dataset: a data set whose file says how to read the logs; by default one without a file
        write: write the file of the data set of this name, HOME/datasets/NAME.toml, with these columns
    """

    dataset: str = "mine"
    write: str | None = None


def inspect(given: InspectParameters) -> str:
    """How logs would be read: their columns, first events and losses, and the data set's file to paste or write."""
    from oneclass.tasks import datasets
    from oneclass.tasks.ingest import preview
    from oneclass.tasks.stores import home

    root = home.resolve_root(given.home)
    name, has_logs, is_written = given.write or given.dataset, bool(given.source), given.write is not None
    dataset = datasets.load_dataset(name, root, with_logs=has_logs, is_declared=is_written, columns=given.columns)
    return preview.inspect_logs(root, dataset, given.source, write=is_written)


if __name__ == "__main__":
    run_as_program("inspect")
