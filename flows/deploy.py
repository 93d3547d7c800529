"""Deploy the nightly run of a data set on the Prefect server.

A worker may run in any folder, and runs each flow in a temporary one. So a deployment names its flow by module, and
every file and folder by absolute path.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oneclass.flows.commands import run_as_program
from oneclass.flows.parameters import NightlyRetrainParameters, SettingParameters
from oneclass.tasks.errors import InputError

WORK_POOL = "oneclass"


@dataclass(frozen=True, kw_only=True)
class DeployParameters(SettingParameters):
    """Parameters of `flows.deploy`: the settings of each night, and its schedule.

    Attributes:
        cron: when the nights start: minute, hour, and so on
        timezone: the time zone of --cron, such as Europe/Paris
        test_notifications: send a message to each target of notify, and deploy nothing
    """

    dataset: str = NightlyRetrainParameters.dataset
    cron: str = "0 3 * * *"
    timezone: str = "UTC"
    test_notifications: bool = False


def deploy(given: DeployParameters) -> str:
    """Deploy the nightly run of a data set on the Prefect server, with these settings.

    The other parameters of each night are at their defaults; change them on the deployment's page.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectNotFound
    from prefect.flows import EntrypointType
    from prefect.schedules import Cron

    from oneclass.flows import PREFECT_DEFAULTS, prefect_server
    from oneclass.flows.pipeline import NIGHTLY_DEPLOYMENT, nightly_retrain
    from oneclass.flows.settings import resolve_settings
    from oneclass.tasks.orchestration import notifications

    targets = resolve_settings(given.to_backfill()).notify
    if given.test_notifications:
        notifications.list_targets(targets)
        return notifications.send_test(targets, given.dataset)
    notifications.warn_of_missing_targets(targets)
    if why := prefect_server.explain_unreachable():
        raise InputError(f"{why} Start it (prefect server start) and run again.")
    with get_client(sync_client=True) as client:
        try:
            client.read_work_pool(WORK_POOL)
        except ObjectNotFound:
            client.create_work_pool(WorkPoolCreate(name=WORK_POOL, type="process"))
    is_demo = given.dataset == NightlyRetrainParameters.dataset
    # Outside an event loop, these two are not coroutines.
    deployment: Any = nightly_retrain.to_deployment(
        NIGHTLY_DEPLOYMENT if is_demo else f"{NIGHTLY_DEPLOYMENT}-{given.dataset}",
        parameters=build_parameters(given),
        schedule=Cron(given.cron, timezone=given.timezone, slug="nightly"),
        work_pool_name=WORK_POOL,
        job_variables={"env": PREFECT_DEFAULTS},
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    deployment.apply()
    return (
        f"Deployed {deployment.name}: every night at {given.cron} ({given.timezone}), in "
        f"{deployment.parameters['home']}.\n"
        f"Start one now:    prefect deployment run {deployment.flow_name}/{deployment.name}\n"
        f"Start a worker:   prefect worker start --pool {WORK_POOL}"
    )


def build_parameters(given: DeployParameters) -> dict[str, Any]:
    """Return the parameters of each night, with absolute paths."""
    from oneclass.tasks.stores import home

    settings = dict(given.settings)
    if titles := settings.get("publish.titles"):
        settings["publish.titles"] = str(Path(titles).resolve())
    config = [str(Path(path).resolve()) for path in given.config]
    kept = ({"config": config} if config else {}) | ({"settings": settings} if settings else {})
    return {"dataset": given.dataset, "home": str(home.resolve_root(given.home).resolve()), **kept}


def places() -> dict[str, str]:
    """Build step of `prefect.yaml`: return the absolute path of the home."""
    from oneclass.tasks.stores import home

    return {"home": str(home.resolve_root().resolve())}


if __name__ == "__main__":
    run_as_program("deploy")
