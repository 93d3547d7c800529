"""Show how logs would be read, before any run."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from cyclopts import Parameter, Token

from oneclass.flows.commands import run_as_program
from oneclass.flows.parameters import DatasetParameters


def _parse_columns(kind: Any, tokens: Sequence[Token]) -> dict[str, list[str]]:
    columns: dict[str, list[str]] = {}
    for token in tokens:
        role, equals, name = token.value.partition("=")
        if not equals:
            raise ValueError(f"{token.value}: write it as role=column, such as user=buyer.")
        columns.setdefault(role, []).append(name)
    return columns


@dataclass(frozen=True, kw_only=True)
class InspectParameters(DatasetParameters):
    """Parameters of `flows.inspect`.

    Attributes:
        dataset: a data set whose file says how to read the logs; by default one without a file
        source: raw log files or folders; by default those in HOME/NAME/landing
        columns: columns of the logs, as [columns] names them, such as user=buyer item=sku value=- time=day time=clock;
            by number where a file has no header
        write: write the file of the data set of this name, HOME/datasets/NAME.toml, with these columns
    """

    dataset: str = "mine"
    source: list[str] = field(default_factory=list[str])
    columns: Annotated[dict[str, list[str]], Parameter(accepts_keys=False, n_tokens=-1, converter=_parse_columns)] = (
        field(default_factory=dict[str, list[str]])
    )
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
