"""The command `flows.backfill`: the whole sequence over logs that are named, or that lie in the landing folder.

python -m flows.backfill --dataset ml-1m --source ratings.csv
"""

import argparse

from flows import command_line
from flows.parameters import Backfill


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    return command_line.parser("flows.backfill", "From raw logs to published tables, in one run.", Backfill)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; its exit status."""
    given = parser().parse_args(arguments)

    def command() -> str:
        from flows import server
        from flows.sequence import backfill, check, closing_words
        from flows.settings import resolve

        parameters = command_line.parameters(Backfill, given)
        check(resolve(parameters))
        with server.at_hand():
            return closing_words(backfill(**parameters.model_dump()))

    return command_line.run(command, debug=given.debug)


if __name__ == "__main__":
    command_line.start(main)
