"""The pipeline over the new files in the data set's landing folder, once."""

from typing import TYPE_CHECKING

from oneclass.flows.commands import run_as_program
from oneclass.flows.parameters import NightlyRetrainParameters
from oneclass.tasks.errors import InputError

if TYPE_CHECKING:
    from oneclass.flows.settings import RunSettings


def nightly_retrain(given: NightlyRetrainParameters, run: "RunSettings") -> str:
    """The nightly run, once."""
    from prefect.exceptions import CancelledRun

    from oneclass.flows import pipeline, run_hooks

    try:
        with run_hooks.hand_over(run):
            return pipeline.format_result(pipeline.nightly_retrain(**vars(given)))
    except CancelledRun as error:
        raise InputError(f"{run.dataset.name}: {error}") from error


if __name__ == "__main__":
    run_as_program("nightly_retrain")
