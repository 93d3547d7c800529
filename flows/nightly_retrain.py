"""The pipeline over the new files in the data set's landing folder, once."""

from oneclass.flows.commands import run_as_program
from oneclass.flows.parameters import NightlyRetrainParameters
from oneclass.tasks.errors import InputError


def nightly_retrain(given: NightlyRetrainParameters) -> str:
    """The nightly run, once."""
    from prefect.exceptions import CancelledRun

    from oneclass.flows import pipeline

    try:
        return pipeline.format_result(pipeline.nightly_retrain(**vars(given)))
    except CancelledRun as error:
        raise InputError(f"{given.dataset}: {error}") from error


if __name__ == "__main__":
    run_as_program("nightly_retrain")
