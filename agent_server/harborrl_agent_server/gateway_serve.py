"""The gateway of a running server: what its settings say about model hosts, agents and addresses."""

import contextlib
import socket
from collections.abc import AsyncIterator, Callable

from harborrl_agent_server.descriptors import allowed
from harborrl_agent_server.endpoints import HostRules
from harborrl_agent_server.gateway import Gateway, listening, opened, serving
from harborrl_agent_server.gateway_connect import model_client
from harborrl_agent_server.gateway_connections import Connections, Limits
from harborrl_agent_server.settings import Settings

IN_SANDBOX = frozenset({"mini-swe-agent"})
"""Agents that run beside the task's files and ask the model from there."""


def host_rules(settings: Settings) -> HostRules:
    """A server of a cluster has nothing on its own loopback that is a model; a local one has everything there."""
    return HostRules.parse(settings.allowed_model_hosts, loopback=settings.sandbox == "local")


def needed(settings: Settings) -> bool:
    """Without an agent in sandboxes, or of somebody's own, nobody has anything to reach."""
    return not (IN_SANDBOX | settings.own_agents.keys()).isdisjoint(settings.allowed_agents)


def listening_host(settings: Settings) -> str:
    return "127.0.0.1" if settings.gateway_host == "127.0.0.1" else "0.0.0.0"  # noqa: S104 - of a pod


def entered(settings: Settings) -> socket.socket | None:
    """The gateway's port, taken before the server serves; None where it needs none. Raises `StartupError`."""
    if settings.worker is not None or not needed(settings):
        return None
    return opened(listening_host(settings), settings.gateway_port)


@contextlib.asynccontextmanager
async def open_gateway(
    settings: Settings, door: socket.socket | None = None, refused: Callable[[str], object] = lambda _: None
) -> AsyncIterator[Gateway]:
    """It listens only where an agent may need it; a worker's behind the dispatcher's, which tells them by token.

    `refused` is told of each connection that is one too many.
    """
    worker = settings.worker
    rules = host_rules(settings)
    connections = Connections(Limits.fitting(allowed()), refused)
    gateway = Gateway(lambda: model_client(rules), f"{worker.index}-" if worker else "", connections=connections)
    if not needed(settings):
        yield gateway
    elif worker is not None:
        worker.gateway_socket.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(worker.gateway_socket))
            gateway.address = worker.gateway
            async with serving(gateway.app(), listener, connections):
                yield gateway
    else:
        door = door or opened(listening_host(settings), settings.gateway_port)
        async with listening(gateway, door, settings.gateway_host):
            yield gateway
