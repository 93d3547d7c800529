"""The command `flows.backfill`: the whole pipeline over named logs, or over the landing folder.

python -m flows.backfill --dataset ml-1m --source ratings.csv
python -m flows.backfill --dataset ml-100k --since 1998-01-01 --until 1998-03-31 --every 1w --dry-run
"""

import argparse

from oneclass.flows import cli
from oneclass.flows.parameters import ReplayParameters


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command."""
    return cli.build_parser("flows.backfill", "From raw logs to published tables.", ReplayParameters)


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    given = parser().parse_args(arguments)

    def command() -> str:
        from oneclass.flows import replay, server_access
        from oneclass.flows.pipeline import backfill, check_run, format_result
        from oneclass.flows.settings import resolve_settings
        from oneclass.tasks.orchestration import precompile

        parameters = cli.parse_parameters(ReplayParameters, given)
        if parameters.every is not None or parameters.dry_run:
            return replay.replay(parameters)
        backfill_parameters = parameters.to_backfill()
        run = resolve_settings(backfill_parameters)
        check_run(run)
        with server_access.ensure_server(), precompile.compiling(run.models, run.home.limits):
            return format_result(backfill(**backfill_parameters.model_dump()))

    return cli.run_command(command, debug=given.debug, with_server=not given.dry_run)


if __name__ == "__main__":
    cli.run_main(main)
