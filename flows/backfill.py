"""The whole pipeline over named logs, or over the landing folder."""

from typing import TYPE_CHECKING

from oneclass.flows.commands import run_as_program
from oneclass.flows.parameters import ReplayParameters

if TYPE_CHECKING:
    from oneclass.flows.settings import RunSettings


def prepare(given: ReplayParameters) -> "RunSettings | str":
    """Check the run, or the nights of a replay, of which a dry run only lists what is missing."""
    from oneclass.flows import run_hooks

    if given.every is None and not given.dry_run:
        return run_hooks.prepare_run(given)
    from oneclass.flows import replay

    with run_hooks.notify_startup_failure(given):
        return replay.prepare_replay(given)


def backfill(given: ReplayParameters) -> str:
    """From raw logs to published tables."""
    from oneclass.flows import pipeline, replay

    if given.every is not None:
        return replay.replay(given)
    return pipeline.format_result(pipeline.backfill(**vars(given.to_backfill())))


if __name__ == "__main__":
    run_as_program("backfill")
