"""The host names of an allowlist, looked up once: the addresses are pinned for the sandbox's life."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import ip_network

from harborrl_agent_server.errors import SandboxStartError

Resolve = Callable[[str], Awaitable[list[str]]]
"""The addresses of a name; raises OSError when there are none."""


async def resolved(name: str) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return sorted({str(address[0]) for *_, address in found})


async def pinned(hosts: Iterable[str], resolve: Resolve) -> dict[str, list[str]]:
    """Addresses by name; what is an address or a network already is left out. Raises `SandboxStartError`."""
    names = sorted({host for host in hosts if not is_network(host)})
    return dict(zip(names, await asyncio.gather(*(_looked_up(name, resolve) for name in names)), strict=True))


async def _looked_up(name: str, resolve: Resolve) -> list[str]:
    try:
        found = await resolve(name)
    except OSError as error:
        raise SandboxStartError(
            "HostUnresolved", f"{name}, which the task's allowed_hosts name, has no address: {error}; correct task.toml"
        ) from error
    return found


def is_network(host: str) -> bool:
    try:
        ip_network(host)
    except ValueError:
        return False
    return True
