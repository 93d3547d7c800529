"""The command `flows.nightly_retrain`: the sequence over the new files in the data set's landing folder.

The deployment runs the same flow: prefect deployment run nightly-retrain/nightly-retrain --param dataset=ml-1m
"""

import argparse

from oneclass.flows import cli
from oneclass.flows.parameters import NightlyRetrainParameters


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command."""
    description = "What the nightly deployment runs, once, from a terminal."
    return cli.build_parser("flows.nightly_retrain", description, NightlyRetrainParameters)


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    given = parser().parse_args(arguments)

    def command() -> str:
        from oneclass.flows import server_access
        from oneclass.flows.pipeline import check_run, format_result, nightly_retrain
        from oneclass.flows.settings import resolve_settings

        parameters = cli.parse_parameters(NightlyRetrainParameters, given)
        check_run(resolve_settings(parameters.to_backfill()))
        with server_access.ensure_server():
            return format_result(nightly_retrain(**parameters.model_dump()))

    return cli.run_command(command, debug=given.debug, with_server=True)


if __name__ == "__main__":
    cli.run_main(main)
