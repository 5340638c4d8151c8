"""The gateway of a running server: what its settings say about model hosts, agents and addresses."""

import contextlib
from collections.abc import AsyncIterator

from harborrl_agent_server.endpoints import HostRules
from harborrl_agent_server.gateway import Gateway, listening
from harborrl_agent_server.gateway_connect import model_client
from harborrl_agent_server.settings import Settings

IN_SANDBOX = frozenset({"mini-swe-agent"})
"""Agents that run beside the task's files and ask the model from there."""


def host_rules(settings: Settings) -> HostRules:
    """A server of a cluster has nothing on its own loopback that is a model; a local one has everything there."""
    return HostRules.parse(settings.allowed_model_hosts, loopback=settings.sandbox == "local")


@contextlib.asynccontextmanager
async def open_gateway(settings: Settings) -> AsyncIterator[Gateway]:
    """It listens only where an agent may need it: without one, sandboxes have nothing to reach."""
    async with model_client(host_rules(settings)) as client:
        gateway = Gateway(client)
        if IN_SANDBOX.isdisjoint(settings.allowed_agents):
            yield gateway
            return
        host = "127.0.0.1" if settings.gateway_host == "127.0.0.1" else "0.0.0.0"  # noqa: S104 - of a pod
        async with listening(gateway, host=host, port=settings.gateway_port, advertised=settings.gateway_host):
            yield gateway
