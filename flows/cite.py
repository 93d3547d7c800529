"""Write the folder that a paper cites a run by."""

from dataclasses import dataclass

from oneclass.flows.commands import run_as_program
from oneclass.flows.parameters import DatasetParameters


@dataclass(frozen=True, kw_only=True)
class CiteParameters(DatasetParameters):
    """Parameters of `flows.cite`.

    Attributes:
        run: the evaluated run whose table is cited; by default the latest
    """

    run: str | None = None


def cite(given: CiteParameters) -> str:
    """A folder for a paper: a run's table in LaTeX and CSV, and the settings, data and versions behind it."""
    from oneclass.tasks.citation import write_citation

    return f"Folder: {write_citation(given.find_home()[0], given.run)}"


if __name__ == "__main__":
    run_as_program("cite")
