"""The whole pipeline over named logs, or over the landing folder."""

from oneclass.flows.commands import run_as_program
from oneclass.flows.parameters import BackfillParameters


def backfill(given: BackfillParameters) -> str:
    """From raw logs to published tables."""
    from oneclass.flows import pipeline

    return pipeline.format_result(pipeline.backfill(**vars(given)))


if __name__ == "__main__":
    run_as_program("backfill")
