"""A deployment is found by its own name, by Prefect's own client."""

import asyncio

import pytest
from prefect.client.orchestration import PrefectClient, get_client

from oneclass.flows.prefect_plugin import setup_environment


@pytest.fixture
def deployments(prefect_server, monkeypatch):
    """`alone` of one flow, `shared` of two; the client's method is Prefect's own, unless a test wraps it."""
    read = PrefectClient.read_deployment_by_name
    monkeypatch.setattr(PrefectClient, "read_deployment_by_name", getattr(read, "__wrapped__", read))

    async def make():
        async with get_client() as client:
            one, other = [await client.create_flow_from_name(name) for name in ("one", "other")]
            for flow, name in ((one, "alone"), (one, "shared"), (other, "shared")):
                await client.create_deployment(flow_id=flow, name=name)

    asyncio.run(make())


def found(name: str) -> str:
    async def look():
        async with get_client() as client:
            return (await client.read_deployment_by_name(name)).name

    return asyncio.run(look())


def test_a_name_that_one_deployment_bears_is_enough(deployments):
    with pytest.raises(ValueError, match="Invalid deployment name"):  # Prefect alone wants the flow's name too
        found("alone")
    setup_environment(ctx=None)
    assert found("alone") == found("one/alone") == "alone"


def test_other_names_are_left_to_prefect(deployments):
    setup_environment(ctx=None)
    setup_environment(ctx=None)  # a second time wraps nothing
    assert not hasattr(PrefectClient.read_deployment_by_name.__wrapped__, "__wrapped__")
    for name in ("shared", "absent"):
        with pytest.raises(ValueError, match="Invalid deployment name"):
            found(name)
    assert found("other/shared") == "shared"
