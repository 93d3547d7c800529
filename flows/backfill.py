"""The whole pipeline over named logs, or over the landing folder."""

from typing import TYPE_CHECKING

from oneclass.flows.commands import run_as_program
from oneclass.flows.parameters import BackfillParameters

if TYPE_CHECKING:
    from oneclass.flows.settings import RunSettings


def backfill(given: BackfillParameters, run: "RunSettings") -> str:
    """From raw logs to published tables."""
    from oneclass.flows import pipeline, run_hooks

    with run_hooks.hand_over(run):
        return pipeline.format_result(pipeline.backfill(**vars(given)))


if __name__ == "__main__":
    run_as_program("backfill")
