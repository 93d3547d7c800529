"""The command `flows.sweep`: refit models for the figures of the report that vary a setting.

python -m flows.sweep --dataset ml-1m --source ratings.csv --sweep paired_symbols_r
"""

import argparse

from oneclass.flows import cli
from oneclass.flows.parameters import SweepParameters


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command."""
    description = "Refit models for the figures that vary a model's settings."
    return cli.build_parser("flows.sweep", description, SweepParameters)


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    given = parser().parse_args(arguments)

    def command() -> str:
        from oneclass.flows import server_access
        from oneclass.flows.pipeline import check_run
        from oneclass.flows.sweep_flow import format_results, plan_sweeps, sweep

        parameters = cli.parse_parameters(SweepParameters, given)
        check_run(plan_sweeps(parameters)[0])
        with server_access.ensure_server():
            return format_results(sweep(**parameters.model_dump()))

    return cli.run_command(command, debug=given.debug, with_server=True)


if __name__ == "__main__":
    cli.run_main(main)
