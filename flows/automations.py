"""What only Prefect's server can tell of: a night that has not begun, for no worker runs, and one whose process died.

Both are automations of the server's, which call the webhook of `notify.webhook` with the body that a run itself would send.
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
from flows.sequence import LATE
from tasks.orchestration.artifacts import key

TAKEN_UP = ("Pending", "Running", "Completed", "Failed", "Crashed", "Cancelling", "Cancelled")
EVENT = "prefect.flow-run.{}"


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
            _remove(client, [f"{name}: not begun", f"{name}: crashed"], block)
            return
        Webhook(url=webhook, headers={"Content-Type": "application/json"}).save(block, overwrite=True)
        called = client.read_block_document_by_name(block, "webhook").id
        begun = {EVENT.format(state) for state in TAKEN_UP}
        _put(
            client,
            f"{name}: not begun",
            _trigger(deployment, after={EVENT.format("Late")}, expect=begun, posture=Posture.Proactive, within=LATE),
            CallWebhook(
                block_document_id=called,
                payload=_body(
                    given.dataset,
                    "not begun",
                    "a night that was due at {{ flow_run.expected_start_time }} has not begun. Does a worker run? "
                    f"`prefect worker start --pool {given.pool}`",
                ),
            ),
        )
        _put(
            client,
            f"{name}: crashed",
            _trigger(deployment, expect={EVENT.format("Crashed")}, posture=Posture.Reactive, within=timedelta(0)),
            CallWebhook(
                block_document_id=called,
                payload=_body(
                    given.dataset,
                    "crashed",
                    "the process of a night ended without a word. What was published before stays as it was; the "
                    "next night, or the same run again, goes on from there.",
                ),
            ),
        )


def _trigger(deployment: UUID, **more) -> EventTrigger:
    """Of the runs of one deployment, each by itself."""
    return EventTrigger(
        match={"prefect.resource.id": "prefect.flow-run.*"},
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
