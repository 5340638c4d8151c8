"""What the supervisor asks of the agent server and of its driver's session servers: load, names, and a flush."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, override
from urllib.parse import urlsplit

import httpx

from harborrl_trainer.job import JobDocument


class FlushFailedError(Exception):
    """No server took the flush. Trials whose client is gone end by themselves, only later."""


@dataclass(frozen=True)
class ServerLoad:
    capacity: int
    in_flight: int
    oldest_trial_s: float | None = None
    """Age of the oldest trial that runs; None when none does or the server does not say."""


class Agents(Protocol):
    async def load(self) -> ServerLoad | None:
        """None when the server does not say."""

    async def sessions(self) -> frozenset[str]:
        """Names under which the driver's session servers open trials; those that answer."""

    async def flush(self, sessions: Collection[str]) -> int:
        """Cancel the trials of these session servers; how many there were. Raises FlushFailedError."""


type Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""(host, port) -> its addresses; empty when the name does not resolve."""


async def resolve(host: str, port: int) -> Sequence[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return ()
    return sorted({str(address[4][0]) for address in found})


class HttpAgents(Agents):
    """`client` has a time-out and no base URL."""

    def __init__(self, job: JobDocument, client: httpx.AsyncClient, resolve: Resolve = resolve) -> None:
        self._job = job
        self._client = client
        self._resolve = resolve

    @override
    async def load(self) -> ServerLoad | None:
        try:
            answer = (await self._client.get(f"{self._url}/health")).json()
            oldest = answer.get("oldest_trial_s")
            return ServerLoad(
                int(answer["capacity"]), int(answer["in_flight"]), None if oldest is None else float(oldest)
            )
        except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError):
            return None

    @override
    async def sessions(self) -> frozenset[str]:
        first, count = self._job.ports.session, self._job.ports.session_count
        found = await asyncio.gather(*(self._session(port) for port in range(first, first + count)))
        return frozenset(name for name in found if name)

    @override
    async def flush(self, sessions: Collection[str]) -> int:
        body = {"session_server_instance_ids": sorted(sessions)}
        answers = await asyncio.gather(*(self._flush(url, body) for url in await self._servers()))
        cancelled = [answer for answer in answers if isinstance(answer, int)]
        if not cancelled:
            raise FlushFailedError("; ".join(str(answer) for answer in answers))
        return sum(cancelled)

    @property
    def _url(self) -> str:
        return self._job.agent_server.url.rstrip("/")

    async def _servers(self) -> list[str]:
        """An own server's pods one by one: its Service alone would miss a predecessor that still drains."""
        port = urlsplit(self._url).port
        if not self._job.agent_server.owned or port is None:
            return [self._url]
        host = f"{self._job.job.name}-agents.{self._job.job.namespace}.svc"
        addresses = await self._resolve(host, port)
        return [f"http://{f'[{address}]' if ':' in address else address}:{port}" for address in addresses] or [
            self._url
        ]

    async def _flush(self, url: str, body: dict[str, list[str]]) -> int | str:
        secret = os.environ.get("HARBOR_ADMIN_SECRET")
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        try:
            answer = await self._client.post(f"{url}/flush", json=body, headers=headers)
            answer.raise_for_status()
            return int(answer.json().get("cancelled", 0))
        except (httpx.HTTPError, ValueError, AttributeError) as error:
            return f"{url}/flush: {type(error).__name__} {error}".rstrip()

    async def _session(self, port: int) -> str:
        try:
            answer = (await self._client.get(f"http://127.0.0.1:{port}/health")).json()
            return str(answer["session_server_instance_id"])
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            return ""
