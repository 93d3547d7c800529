"""The command `flows.promote`: what is published, what was, and why; another model, or an earlier publication, by hand.

python -m flows.promote --dataset ml-1m
python -m flows.promote --dataset ml-1m --model slim
python -m flows.promote --dataset ml-1m --rollback
"""

import argparse
import logging
import uuid

from oneclass.flows import cli
from oneclass.flows.parameters import PromoteParameters
from oneclass.tasks.errors import InputError

logger = logging.getLogger(__name__)


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    description = "Without --model and --rollback: what is published, which publications are kept, the last decisions."
    return cli.build_parser("flows.promote", description, PromoteParameters)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; its exit status."""
    given = parser().parse_args(arguments)
    return cli.run_command(lambda: _apply(cli.parse_parameters(PromoteParameters, given)), debug=given.debug)


def _reconcile(earlier: dict[str, str]) -> None:
    """Have the server that is named, where it answers, show how earlier runs ended; else the next night does."""
    from oneclass.flows import prefect_server
    from oneclass.tasks.orchestration import reconcile

    if prefect_server.is_reachable():
        try:
            reconcile.sync_run_states(earlier)
        except Exception as error:  # noqa: BLE001  (what is only shown must not end the command)
            logger.warning("how earlier runs ended cannot be shown in Prefect: %s", error)


def _apply(given: PromoteParameters) -> str:
    from oneclass.tasks import datasets, home_page
    from oneclass.tasks.publish.promotion import manual
    from oneclass.tasks.settings import check_model
    from oneclass.tasks.stores import home, runs

    root = home.resolve_root(given.home)
    of_dataset = home.Home(root, datasets.load_dataset(given.dataset, root).name)
    if given.model is not None and given.rollback is not None:
        raise InputError("--model and --rollback: only one of them at a time.")
    if not of_dataset.warehouse.exists():
        raise InputError(f"{of_dataset.warehouse}: does not exist. Run flows.backfill on {given.dataset} first.")
    if given.model is not None:
        check_model(given.model)
    if given.model is not None or given.rollback is not None:
        run_id = str(uuid.uuid4())
        with runs.record_run(of_dataset, run_id, "promote", given.model_dump()) as earlier:
            _reconcile(earlier)
            if given.model is not None:
                manual.promote_model(of_dataset, run_id, given.model)
            else:
                manual.roll_back(of_dataset, run_id, given.rollback or None)
        home_page.write_home_page(of_dataset)
    return manual.format_status(of_dataset)


if __name__ == "__main__":
    cli.run_main(main)
