"""The command `flows.tune`: search a model's settings, and leave the best in a file that `--config` takes.

python -m flows.tune --dataset ml-1m --source ratings.csv --model wmf --trials 50
"""

import argparse

from flows import command_line
from flows.parameters import Tune


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    description = (
        "Search a model's settings on validation users; the test part is not read. What is named in --set stays "
        "fixed; the search begins at the data set's own settings, or those of --config."
    )
    return command_line.parser("flows.tune", description, Tune)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; its exit status."""
    given = parser().parse_args(arguments)

    def command() -> str:
        from flows import server
        from flows.sequence import check
        from flows.tuning import planned, tune

        parameters = command_line.parameters(Tune, given)
        check(planned(parameters)[0])
        with server.at_hand():
            tuned = tune(**parameters.model_dump())
        return f"{tuned.table}\n\nBest settings: {tuned.file}\nTake them with --config {tuned.file}"

    return command_line.run(command, debug=given.debug, with_server=True)


if __name__ == "__main__":
    command_line.start(main)
