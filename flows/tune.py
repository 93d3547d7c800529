"""The command `flows.tune`: search a model's settings and write the best to a file for `--config`.

python -m flows.tune --dataset ml-1m --source ratings.csv --model wmf --trials 50
"""

import argparse

from oneclass.flows import cli
from oneclass.flows.parameters import TuneParameters


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command."""
    description = (
        "Search a model's settings on validation users; the test part is not read. What is named in --set stays "
        "fixed; the search begins at the data set's own settings, or those of --config."
    )
    return cli.build_parser("flows.tune", description, TuneParameters)


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    given = parser().parse_args(arguments)

    def command() -> str:
        from oneclass.flows import server_access
        from oneclass.flows.pipeline import check_run
        from oneclass.flows.tune_flow import plan_tuning, tune

        parameters = cli.parse_parameters(TuneParameters, given)
        check_run(plan_tuning(parameters)[0])
        with server_access.ensure_server():
            tuned = tune(**parameters.model_dump())
        return f"{tuned.table}\n\nBest settings: {tuned.file}\nTake them with --config {tuned.file}"

    return cli.run_command(command, debug=given.debug, with_server=True)


if __name__ == "__main__":
    cli.run_main(main)
