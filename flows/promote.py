"""The command `flows.promote`: show the publications and decisions, or publish another model or an earlier publication.

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
    """Build the parser of the command."""
    description = "Without --model and --rollback: show the current publication, the others, and the last decisions."
    return cli.build_parser("flows.promote", description, PromoteParameters)


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    given = parser().parse_args(arguments)
    return cli.run_command(lambda: _apply(cli.parse_parameters(PromoteParameters, given)), debug=given.debug)


def _reconcile(earlier: dict[str, str]) -> None:
    """Sync the states of earlier runs to the configured server if it answers; otherwise the next night does."""
    from oneclass.flows import server_access
    from oneclass.tasks.orchestration import reconcile

    if server_access.is_reachable():
        try:
            reconcile.sync_run_states(earlier)
        except Exception as error:  # noqa: BLE001  (a failing display must not end the command)
            logger.warning("how earlier runs ended cannot be shown in Prefect: %s", error)


def _apply(given: PromoteParameters) -> str:
    from oneclass.tasks import datasets, home_page
    from oneclass.tasks.publish.promotion import manual
    from oneclass.tasks.settings import check_model
    from oneclass.tasks.stores import home, runs

    root = home.resolve_root(given.home)
    dataset_home = home.Home(root, datasets.load_dataset(given.dataset, root).name)
    if given.model is not None and given.rollback is not None:
        raise InputError("--model and --rollback: only one of them at a time.")
    if not dataset_home.warehouse.exists():
        raise InputError(f"{dataset_home.warehouse}: does not exist. Run flows.backfill on {given.dataset} first.")
    if given.model is not None:
        check_model(given.model)
    if given.model is not None or given.rollback is not None:
        run_id = str(uuid.uuid4())
        with runs.record_run(dataset_home, run_id, "promote", given.model_dump()) as earlier:
            _reconcile(earlier)
            if given.model is not None:
                manual.promote_model(dataset_home, run_id, given.model)
            else:
                manual.roll_back(dataset_home, run_id, given.rollback or None)
        home_page.write_home_page(dataset_home)
    return manual.format_status(dataset_home)


if __name__ == "__main__":
    cli.run_main(main)
