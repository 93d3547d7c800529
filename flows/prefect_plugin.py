"""Prefect plugin that finds a deployment by its own name, without the flow's: `prefect deployment run nightly-retrain`.

Prefect's command requires `flow/deployment`. Its plugin hook is public, but the client's method that is wrapped here is
not, so the README also shows the full form, `nightly-retrain/nightly-retrain`.
"""

import functools
from typing import Any

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterName
from prefect.plugins import HookContext, SetupResult, register_hook


@register_hook
def setup_environment(*, ctx: HookContext) -> SetupResult | None:
    """Wrap the client's look-up of deployments when Prefect starts. Changes no environment variable."""
    client_class: Any = PrefectClient
    read = client_class.read_deployment_by_name

    @functools.wraps(read)
    async def read_by_bare_name(client: PrefectClient, name: str) -> Any:
        if "/" not in name:
            named = DeploymentFilter(name=DeploymentFilterName(any_=[name]))
            found = await client.read_deployments(deployment_filter=named)
            if len(found) == 1:
                return found[0]
        return await read(client, name)

    if not hasattr(read, "__wrapped__"):
        client_class.read_deployment_by_name = read_by_bare_name
    return None
