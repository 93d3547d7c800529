"""The command `flows.nightly_retrain`: the sequence over the new files in the data set's landing folder.

The deployment runs the same flow: prefect deployment run nightly-retrain/nightly-retrain --param dataset=ml-1m
"""

import argparse

from flows import command_line
from flows.parameters import NightlyRetrain


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    description = "What the nightly deployment runs, once, from a terminal."
    return command_line.parser("flows.nightly_retrain", description, NightlyRetrain)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; its exit status."""
    given = parser().parse_args(arguments)

    def command() -> str:
        from flows import server
        from flows.sequence import check, closing_words, nightly_retrain
        from flows.settings import resolve

        parameters = command_line.parameters(NightlyRetrain, given)
        check(resolve(parameters.as_backfill()))
        with server.at_hand():
            return closing_words(nightly_retrain(**parameters.model_dump()))

    return command_line.run(command, debug=given.debug, with_server=True)


if __name__ == "__main__":
    command_line.start(main)
