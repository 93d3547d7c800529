"""The nightly run: the same sequence over the new files in the data set's landing folder.

prefect deployment run nightly-retrain/nightly-retrain --param dataset=ml-1m
"""

import argparse
from typing import Any

from prefect import flow

from flows import command_line
from flows.sequence import check, run_name, run_sequence
from flows.settings import resolve
from tasks.publish import Published


@flow(name="nightly-retrain", flow_run_name=run_name)
def nightly_retrain(
    dataset: str = "demo",
    home: str | None = None,
    models: list[str] | None = None,
    protocols: list[str] | None = None,
    config: list[str] | None = None,
    settings: dict[str, Any] | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> Published:
    """Retrain on everything so far, the new files of the landing folder included, and publish."""
    run = resolve(
        dataset,
        home=home,
        models=models or (),
        protocols=protocols or (),
        config=config or (),
        settings=settings,
        seed=seed,
        threads=threads,
    )
    check(run)
    return run_sequence(run, "nightly-retrain")


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    parser = command_line.parser("flows.nightly_retrain", "What the nightly deployment runs, once, from a terminal.")
    parser.add_argument("--dataset", default="demo", metavar="NAME", help="the data set (default demo)")
    command_line.add_models(parser)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command; its exit status."""
    given = parser().parse_args(arguments)

    def command() -> str:
        parameters = {
            "dataset": given.dataset,
            "models": given.models,
            "protocols": given.protocols,
            **command_line.common_parameters(given),
        }
        check(resolve(**parameters))
        return command_line.closing_words(nightly_retrain(**parameters))

    return command_line.run(command, debug=given.debug)


if __name__ == "__main__":
    raise SystemExit(main())
