"""The command `flows.promote`: what is published, what was, and why; another model, or an earlier publication, by hand.

python -m flows.promote --dataset ml-1m
python -m flows.promote --dataset ml-1m --model slim
python -m flows.promote --dataset ml-1m --rollback
"""

import argparse
import logging
import uuid

from flows import command_line
from flows.parameters import Promote
from tasks.errors import InputError

logger = logging.getLogger(__name__)


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    description = "Without --model and --rollback: what is published, which publications are kept, the last decisions."
    return command_line.parser("flows.promote", description, Promote)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; its exit status."""
    given = parser().parse_args(arguments)
    return command_line.run(lambda: _done(command_line.parameters(Promote, given)), debug=given.debug)


def _settle(earlier: dict[str, str]) -> None:
    """Have the server that is named, where it answers, show how earlier runs ended; else the next night does."""
    from flows import server
    from tasks.orchestration import crashed_runs

    if server.answers():
        try:
            crashed_runs.tell(earlier)
        except Exception as error:  # noqa: BLE001  (what is only shown must not end the command)
            logger.warning("how earlier runs ended cannot be shown in Prefect: %s", error)


def _done(given: Promote) -> str:
    from tasks import datasets, overview, promote
    from tasks.settings import check_model
    from tasks.stores import home, runs

    root = home.root(given.home)
    of_dataset = home.Home(root, datasets.load(given.dataset, root).name)
    if given.model is not None and given.rollback is not None:
        raise InputError("--model and --rollback: only one of them at a time.")
    if not of_dataset.warehouse.exists():
        raise InputError(f"{of_dataset.warehouse}: does not exist. Run flows.backfill on {given.dataset} first.")
    if given.model is not None:
        check_model(given.model)
    if given.model is not None or given.rollback is not None:
        run_id = str(uuid.uuid4())
        with runs.recorded(of_dataset, run_id, "promote", given.model_dump()) as earlier:
            _settle(earlier)
            if given.model is not None:
                promote.publish_by_hand(of_dataset, run_id, given.model)
            else:
                promote.rollback(of_dataset, run_id, given.rollback or None)
        overview.rewrite(of_dataset)
    return promote.status(of_dataset)


if __name__ == "__main__":
    command_line.start(main)
