"""The command `flows.backfill`: the whole sequence over logs that are named, or that lie in the landing folder.

python -m flows.backfill --dataset ml-1m --source ratings.csv
python -m flows.backfill --dataset ml-100k --since 1998-01-01 --until 1998-03-31 --every 1w --dry-run
"""

import argparse

from flows import command_line
from flows.parameters import Replay


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    return command_line.parser("flows.backfill", "From raw logs to published tables.", Replay)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; its exit status."""
    given = parser().parse_args(arguments)

    def command() -> str:
        from flows import replay, server
        from flows.sequence import backfill, check, closing_words
        from flows.settings import resolve
        from tasks.orchestration import compile_ahead

        asked = command_line.parameters(Replay, given)
        if asked.every is not None or asked.dry_run:
            return replay.replay(asked)
        parameters = asked.as_backfill()
        run = resolve(parameters)
        check(run)
        with server.at_hand(), compile_ahead.compiling(run.models, run.home.limits):
            return closing_words(backfill(**parameters.model_dump()))

    return command_line.run(command, debug=given.debug, with_server=not given.dry_run)


if __name__ == "__main__":
    command_line.start(main)
