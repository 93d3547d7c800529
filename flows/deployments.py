"""Deployments of the nightly run in Prefect: one for each data set, each with its home as an absolute path.

A worker may run in any folder, and runs each flow in a temporary one; so a deployment names its flow by the module that
it is in, and every file and folder by its whole path.
"""

from pathlib import Path
from typing import Any

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectNotFound
from prefect.flows import EntrypointType
from prefect.schedules import Cron

from flows import PREFECT_DEFAULTS, automations, server
from flows.parameters import Deploy
from flows.sequence import NIGHTLY, nightly_retrain
from flows.settings import resolve
from tasks.stores import home

OF_THE_DEPLOYMENT = {"cron", "timezone", "pool"}  # its own parameters; all others are given to each night


def places() -> dict[str, str]:
    """A build step of `prefect.yaml`: the home that `$ONECLASS_HOME` or the present folder gives, as a whole path."""
    return {"home": str(home.root().resolve())}


def name_of(dataset: str) -> str:
    """The deployment of a data set: `nightly-retrain` for the demo, as in `prefect.yaml`, else `nightly-retrain-NAME`."""
    return NIGHTLY if dataset == Deploy.model_fields["dataset"].default else f"{NIGHTLY}-{dataset}"


def parameters_of(given: Deploy) -> dict[str, Any]:
    """What each night of the deployment is given; paths are made whole."""
    return (
        given.model_dump(mode="json", exclude=OF_THE_DEPLOYMENT, exclude_defaults=True)
        | {
            "dataset": given.dataset,
            "home": str(home.root(given.home).resolve()),
            "config": [str(Path(path).resolve()) for path in given.config],
        }
        | _titles(given.settings)
    )


def _titles(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings, if they name a table of titles, with its whole path."""
    name = "publish.titles"
    return {"settings": {**settings, name: str(Path(settings[name]).resolve())}} if settings.get(name) else {}


def deploy(given: Deploy) -> RunnerDeployment:
    """Make or update the deployment of a data set, and the work pool where there is none.

    Where the settings have a `notify.webhook`, the server calls it for nights that do not begin, or crash.

    Raises:
        InputError: a parameter is wrong, or no Prefect server answers.
    """
    notices = resolve(given.as_backfill()).notify
    server.require()
    with get_client(sync_client=True) as client:
        try:
            client.read_work_pool(given.pool)
        except ObjectNotFound:
            client.create_work_pool(WorkPoolCreate(name=given.pool, type="process"))
    deployment = nightly_retrain.to_deployment(
        name_of(given.dataset),
        parameters=parameters_of(given),
        schedule=Cron(given.cron, timezone=given.timezone, slug="nightly"),
        work_pool_name=given.pool,
        job_variables={"env": PREFECT_DEFAULTS},
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    automations.tell(given, deployment.name, deployment.apply(), notices.webhook)
    return deployment
