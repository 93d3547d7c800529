"""The command `flows.sweep`: the refits behind the report's figures that vary a model's settings.

python -m flows.sweep --dataset ml-1m --source ratings.csv --sweep paired_symbols_r
"""

import argparse

from flows import command_line
from flows.parameters import Sweep


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    description = "The refits behind the figures that vary a model's settings."
    return command_line.parser("flows.sweep", description, Sweep)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; its exit status."""
    given = parser().parse_args(arguments)

    def command() -> str:
        from flows import server
        from flows.sequence import check
        from flows.sweeping import closing_words, planned, sweep

        parameters = command_line.parameters(Sweep, given)
        check(planned(parameters)[0])
        with server.at_hand():
            return closing_words(sweep(**parameters.model_dump()))

    return command_line.run(command, debug=given.debug, with_server=True)


if __name__ == "__main__":
    command_line.start(main)
