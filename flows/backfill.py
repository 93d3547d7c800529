"""Backfill: the whole sequence over logs that are named, or that lie in the landing folder.

python -m flows.backfill --dataset ml-1m --source ratings.csv
"""

import argparse
from datetime import date
from typing import Any

from prefect import flow

from flows import command_line
from flows.sequence import check, run_name, run_sequence
from flows.settings import resolve
from tasks.publish import Published


@flow(name="backfill", flow_run_name=run_name)
def backfill(
    dataset: str = "demo",
    source: list[str] | None = None,
    split_files: list[str] | None = None,
    since: date | None = None,
    until: date | None = None,
    home: str | None = None,
    models: list[str] | None = None,
    protocols: list[str] | None = None,
    config: list[str] | None = None,
    settings: dict[str, Any] | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> Published:
    """From raw logs to published tables; the parameters are the command's flags."""
    run = resolve(
        dataset,
        home=home,
        source=source or (),
        split_files=split_files or (),
        since=since,
        until=until,
        models=models or (),
        protocols=protocols or (),
        config=config or (),
        settings=settings,
        seed=seed,
        threads=threads,
    )
    return run_sequence(run, "backfill")


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    parser = command_line.parser("flows.backfill", "From raw logs to published tables, in one run.")
    command_line.add_logs(parser)
    command_line.add_models(parser)
    parser.add_argument("--since", type=date.fromisoformat, metavar="DATE", help="events from this day on (YYYY-MM-DD)")
    parser.add_argument("--until", type=date.fromisoformat, metavar="DATE", help="events up to the end of this day")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command; its exit status."""
    given = parser().parse_args(arguments)

    def command() -> str:
        parameters = {
            "dataset": given.dataset,
            "source": given.source,
            "split_files": given.split_files,
            "since": given.since,
            "until": given.until,
            "models": given.models,
            "protocols": given.protocols,
            **command_line.common_parameters(given),
        }
        check(resolve(**parameters))
        return command_line.closing_words(backfill(**parameters))

    return command_line.run(command, debug=given.debug)


if __name__ == "__main__":
    raise SystemExit(main())
