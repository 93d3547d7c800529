"""Deployments of the nightly run in Prefect: one per data set, each with its home as an absolute path.

A worker may run in any folder, and runs each flow in a temporary one. So a deployment names its flow by module, and
every file and folder by absolute path.
"""

import contextlib
import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.automations import Automation
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.deployments.runner import RunnerDeployment
from prefect.events.actions import CallWebhook
from prefect.events.schemas.automations import EventTrigger, Posture
from prefect.exceptions import ObjectNotFound
from prefect.flows import EntrypointType
from prefect.schedules import Cron
from prefect.types import SecretDict
from pydantic import SecretStr

from oneclass.flows import PREFECT_DEFAULTS, server_access
from oneclass.flows.parameters import DeployParameters
from oneclass.flows.pipeline import NIGHTLY_DEPLOYMENT, nightly_retrain
from oneclass.flows.run_hooks import MAX_DELAY
from oneclass.flows.settings import resolve_settings
from oneclass.tasks.errors import SettingsError
from oneclass.tasks.orchestration.artifacts import artifact_key
from oneclass.tasks.orchestration.notifications import warn_of_missing_targets
from oneclass.tasks.stores import home

STARTED_STATES = ("Pending", "Running", "Completed", "Failed", "Crashed", "Cancelling", "Cancelled")
STARTUP_FAILURES = (  # messages of runs that failed before they knew the notification targets
    "Validation of flow parameters failed*",
    f"Flow run encountered an exception: {SettingsError.__name__}:*",
)
EVENT_NAME = "prefect.flow-run.{}"
NOTIFICATIONS = {  # name of the automation: (state, text) of the notification
    "not begun": (
        "not begun",
        (
            "a night that was due at {{{{ flow_run.expected_start_time }}}} has not begun. Does a worker run? `prefect "
            "worker start --pool {pool}`"
        ),
    ),
    "crashed": (
        "crashed",
        (
            "the process of a night ended without a word. What was published before stays as it was; the next night, "
            "or the same run again, goes on from there."
        ),
    ),
    "failed before it could tell": (
        "failed",
        (
            "a night failed before its first stage: its parameters or settings are wrong. Its page has the message; "
            "run `python -m flows.deploy` again with better ones."
        ),
    ),
}


def install_automations(given: DeployParameters, name: str, deployment: UUID, webhook: str | None) -> None:
    """Create or update the automations of a deployment, or remove them if there is no webhook.

    The server waits for `MAX_DELAY` after marking a night as late; after that the run itself notifies.

    Args:
        name: of the deployment.
        webhook: the address of the notifications.
    """
    block = f"oneclass-{artifact_key(name)}"
    with get_client(sync_client=True) as client:
        if webhook is None:
            _delete_automations(client, [f"{name}: {what}" for what in NOTIFICATIONS], block)
            return
        Webhook(url=SecretStr(webhook), headers=SecretDict({"Content-Type": "application/json"})).save(
            block, overwrite=True
        )
        webhook_id = client.read_block_document_by_name(block, "webhook").id
        for what, trigger in _build_triggers(deployment).items():
            state, text = NOTIFICATIONS[what]
            body = _webhook_body(given.dataset, state, text.format(pool=given.pool))
            _create_or_update(
                client, f"{name}: {what}", trigger, CallWebhook(block_document_id=webhook_id, payload=body)
            )


def _build_triggers(deployment: UUID) -> dict[str, EventTrigger]:
    """Return the trigger of each of `NOTIFICATIONS`."""
    reactive: dict[str, Any] = {"posture": Posture.Reactive, "within": timedelta(0)}
    started = {EVENT_NAME.format(state) for state in STARTED_STATES}
    failed, crashed = ({EVENT_NAME.format(state)} for state in ("Failed", "Crashed"))
    return {
        "not begun": _build_trigger(
            deployment, after={EVENT_NAME.format("Late")}, expect=started, posture=Posture.Proactive, within=MAX_DELAY
        ),
        "crashed": _build_trigger(deployment, expect=crashed, **reactive),
        "failed before it could tell": _build_trigger(deployment, STARTUP_FAILURES, expect=failed, **reactive),
    }


def _build_trigger(deployment: UUID, messages: Sequence[str] = (), **more: Any) -> EventTrigger:
    """Build a trigger for each run of one deployment; with `messages`, for states with one of them only."""
    state_match = {"prefect.state-message": list(messages)} if messages else {}
    return EventTrigger(
        match={"prefect.resource.id": "prefect.flow-run.*", **state_match},
        match_related={
            "prefect.resource.role": "deployment",
            "prefect.resource.id": f"prefect.deployment.{deployment}",
        },
        for_each={"prefect.resource.id"},
        threshold=1,
        **more,
    )


def _webhook_body(dataset: str, state: str, words: str) -> str:
    """Return the body that `tasks.orchestration.notifications` sends, with the server's placeholders."""
    run = "Run {{ flow_run.id }} {{ (flow_run|ui_url) or '' }}"  # no name or message, whose quotes would end the text
    return json.dumps(
        {"text": f"{dataset}: {words}\n{run}", "dataset": dataset, "run_id": "{{ flow_run.id }}", "state": state}
    )


def _create_or_update(client: SyncPrefectClient, name: str, trigger: EventTrigger, action: CallWebhook) -> None:
    """Create the automation of this name, or update it if it differs.

    For a moment after a change the server may act by both the old and the new automation.
    """
    automation = Automation(name=name, trigger=trigger, actions=[action])
    existing = client.read_automations_by_name(name)
    if not existing:
        automation.create()
    elif (existing[0].trigger, existing[0].actions, existing[0].enabled) != (trigger, [action], True):
        automation.id = existing[0].id
        automation.update()


def _delete_automations(client: SyncPrefectClient, names: Sequence[str], block: str) -> None:
    for name in names:
        for automation in client.read_automations_by_name(name):
            client.delete_automation(automation.id)
    _delete_block(client, block, "webhook")


def _delete_block(client: SyncPrefectClient, name: str, kind: str) -> None:
    with contextlib.suppress(ObjectNotFound):
        client.delete_block_document(client.read_block_document_by_name(name, kind).id)


# Parameters of the deployment itself; all others are passed to each night.
DEPLOYMENT_FIELDS = {"cron", "timezone", "pool"}


def places() -> dict[str, str]:
    """Build step of `prefect.yaml`: return the absolute path of the home."""
    return {"home": str(home.resolve_root().resolve())}


def deployment_name(dataset: str) -> str:
    """Return the deployment's name: `nightly-retrain` for the demo, else `nightly-retrain-NAME`."""
    return (
        NIGHTLY_DEPLOYMENT
        if dataset == DeployParameters.model_fields["dataset"].default
        else f"{NIGHTLY_DEPLOYMENT}-{dataset}"
    )


def deployment_parameters(given: DeployParameters) -> dict[str, Any]:
    """Return the parameters of each night, with absolute paths."""
    return (
        given.model_dump(mode="json", exclude=DEPLOYMENT_FIELDS, exclude_defaults=True)
        | {
            "dataset": given.dataset,
            "home": str(home.resolve_root(given.home).resolve()),
            "config": [str(Path(path).resolve()) for path in given.config],
        }
        | _resolve_titles(given)
    )


def _resolve_titles(given: DeployParameters) -> dict[str, Any]:
    """Return an absolute path to the table of titles, if the flag or the setting names one."""
    path = given.titles or given.settings.get("publish.titles")
    return {"titles": str(Path(path).resolve())} if path else {}


def deploy(given: DeployParameters) -> RunnerDeployment:
    """Create or update the deployment of a data set, and the work pool if absent.

    If the settings have a `notify.webhook`, the server calls it for nights that do not start, or crash. Secrets of
    `--set` are kept in Secret blocks, as the server shows parameters.

    Raises:
        InputError: a parameter is wrong, or no Prefect server answers.
    """
    notices = resolve_settings(given.to_backfill()).notify
    warn_of_missing_targets(notices)
    server_access.require_server()
    webhook = notices.read_target("webhook")
    with get_client(sync_client=True) as client:
        try:
            client.read_work_pool(given.pool)
        except ObjectNotFound:
            client.create_work_pool(WorkPoolCreate(name=given.pool, type="process"))
    # Outside an event loop, these two are not coroutines.
    deployment: Any = nightly_retrain.to_deployment(
        deployment_name(given.dataset),
        parameters=deployment_parameters(given),
        schedule=Cron(given.cron, timezone=given.timezone, slug="nightly"),
        work_pool_name=given.pool,
        job_variables={"env": PREFECT_DEFAULTS},
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    install_automations(given, deployment.name, deployment.apply(), webhook)
    return deployment
