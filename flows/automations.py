"""What only Prefect's server can tell of: nights that do not begin, that fail before they can tell, or whose process died.

Each is an automation of the server's, which calls the webhook of `notify.webhook` with the body that a run itself would send.
"""

import json
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from prefect.automations import Automation
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.events.actions import CallWebhook
from prefect.events.schemas.automations import EventTrigger, Posture
from prefect.exceptions import ObjectNotFound

from flows.parameters import Deploy
from flows.telling import LATE
from tasks.errors import SettingsWrong
from tasks.orchestration.artifacts import key

TAKEN_UP = ("Pending", "Running", "Completed", "Failed", "Crashed", "Cancelling", "Cancelled")
BEFORE_IT_CAN_TELL = (  # the messages of runs that failed before they knew whom to tell
    "Validation of flow parameters failed*",
    f"Flow run encountered an exception: {SettingsWrong.__name__}:*",
)
EVENT = "prefect.flow-run.{}"
WORDS = {  # what is posted as the state, and as the text, by the name of the automation
    "not begun": (
        "not begun",
        "a night that was due at {{{{ flow_run.expected_start_time }}}} has not begun. Does a worker run? `prefect worker start --pool {pool}`",
    ),
    "crashed": (
        "crashed",
        "the process of a night ended without a word. What was published before stays as it was; the next night, or the same run again, goes on from there.",
    ),
    "failed before it could tell": (
        "failed",
        "a night failed before its first stage: its parameters or settings are wrong. Its page has the message; run `python -m flows.deploy` again with better ones.",
    ),
}


def tell(given: Deploy, name: str, deployment: UUID, webhook: str | None) -> None:
    """Make or update the automations of a deployment; where there is no webhook, remove them.

    The server waits LATE after it has marked a night as late, which a run itself would tell of from then on.

    Args:
        name: of the deployment.
        webhook: the address that is told.
    """
    block = key("oneclass", name)
    with get_client(sync_client=True) as client:
        if webhook is None:
            _remove(client, [f"{name}: {what}" for what in WORDS], block)
            return
        Webhook(url=webhook, headers={"Content-Type": "application/json"}).save(block, overwrite=True)
        called = client.read_block_document_by_name(block, "webhook").id
        for what, trigger in _triggers(deployment).items():
            state, words = WORDS[what]
            body = _body(given.dataset, state, words.format(pool=given.pool))
            _put(client, f"{name}: {what}", trigger, CallWebhook(block_document_id=called, payload=body))


def _triggers(deployment: UUID) -> dict[str, EventTrigger]:
    """When each of WORDS is posted."""
    reactive = {"posture": Posture.Reactive, "within": timedelta(0)}
    taken_up = {EVENT.format(state) for state in TAKEN_UP}
    failed, crashed = ({EVENT.format(state)} for state in ("Failed", "Crashed"))
    return {
        "not begun": _trigger(
            deployment, after={EVENT.format("Late")}, expect=taken_up, posture=Posture.Proactive, within=LATE
        ),
        "crashed": _trigger(deployment, expect=crashed, **reactive),
        "failed before it could tell": _trigger(deployment, BEFORE_IT_CAN_TELL, expect=failed, **reactive),
    }


def _trigger(deployment: UUID, messages: Sequence[str] = (), **more) -> EventTrigger:
    """A trigger for the runs of one deployment, each by itself; with `messages`, only for states that say one of these."""
    of_the_state = {"prefect.state-message": list(messages)} if messages else {}
    return EventTrigger(
        match={"prefect.resource.id": "prefect.flow-run.*", **of_the_state},
        match_related={
            "prefect.resource.role": "deployment",
            "prefect.resource.id": f"prefect.deployment.{deployment}",
        },
        for_each={"prefect.resource.id"},
        threshold=1,
        **more,
    )


def _body(dataset: str, state: str, words: str) -> str:
    """As `tasks.orchestration.notices` sends it, with what the server fills in."""
    run = "Run {{ flow_run.id }} {{ (flow_run|ui_url) or '' }}"  # no name, no message: a quote in it would end the text
    return json.dumps(
        {"text": f"{dataset}: {words}\n{run}", "dataset": dataset, "run_id": "{{ flow_run.id }}", "state": state}
    )


def _put(client: SyncPrefectClient, name: str, trigger: EventTrigger, action: CallWebhook) -> None:
    """An automation of that name, made or brought up to date; one that is as it should be is left alone.

    For a moment after a change the server may act by the old one and by the new.
    """
    automation = Automation(name=name, trigger=trigger, actions=[action])
    found = client.read_automations_by_name(name)
    if not found:
        automation.create()
    elif (found[0].trigger, found[0].actions, found[0].enabled) != (trigger, [action], True):
        automation.id = found[0].id
        automation.update()


def _remove(client: SyncPrefectClient, names: Sequence[str], block: str) -> None:
    for name in names:
        for automation in client.read_automations_by_name(name):
            client.delete_automation(automation.id)
    try:
        client.delete_block_document(client.read_block_document_by_name(block, "webhook").id)
    except ObjectNotFound:
        return
