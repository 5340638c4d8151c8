"""The other servers of the same job: a version that drains still runs trials that a flush means."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence

import httpx
from pydantic import ValidationError

from harborrl_agent_server.bearer import headers_with
from harborrl_agent_server.contract import FlushResponse
from harborrl_agent_server.settings import JobIdentity, Settings

LOG = logging.getLogger(__name__)

FORWARDED_BY = "X-HarborRL-Forwarded-By"
"""Names the server that passes a flush on; who receives it passes it no further."""

TIMEOUT = httpx.Timeout(9, connect=3)
"""Seconds: above what a server waits for its own cancelled trials, below what our clients wait for the whole answer."""

Resolve = Callable[[], Awaitable[Sequence[str]]]
"""Base URLs of all servers of the job, this one included or not."""


def service_of(job: JobIdentity, port: int) -> Resolve:
    """By the headless Service, which names every pod, draining ones too; nobody for a server without a job."""

    async def resolve() -> list[str]:
        if not job:
            return []
        host = f"{job.name}-agents.{job.namespace}.svc"
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            LOG.warning("%s does not resolve (%s): a flush reaches this server alone", host, error)
            return []
        addresses = sorted({str(address[4][0]) for address in found})
        return [f"http://{f'[{address}]' if ':' in address else address}:{port}" for address in addresses]

    return resolve


class Peers:
    def __init__(self, settings: Settings, client: httpx.AsyncClient, resolve: Resolve | None = None) -> None:
        self._settings = settings
        self._client = client
        self._resolve = resolve or service_of(settings.job, settings.port)

    async def flush(self, ids: Sequence[str]) -> list[FlushResponse]:
        """What each of them answered. One that cannot be reached is `unreached`; this server itself answers zeros."""
        urls = await self._resolve()
        return list(await asyncio.gather(*(self._flush(url, ids) for url in urls)))

    async def _flush(self, url: str, ids: Sequence[str]) -> FlushResponse:
        headers = {FORWARDED_BY: self._settings.pod_name} | headers_with(self._settings.admin_secret)
        body = {"session_server_instance_ids": list(ids)}
        try:
            answer = await self._client.post(f"{url}/flush", json=body, headers=headers, timeout=TIMEOUT)
            answer.raise_for_status()
            return FlushResponse.model_validate_json(answer.content)
        except httpx.ConnectError:
            return FlushResponse(cancelled=0, pending=0, ids=[])  # nobody listens: its trials have ended with it
        except (httpx.HTTPError, ValidationError) as error:
            LOG.warning("flush was not taken by %s: %s %s", url, type(error).__name__, error)
            return FlushResponse(cancelled=0, pending=0, ids=[], unreached=1)


def together(own: FlushResponse, others: Sequence[FlushResponse]) -> FlushResponse:
    answers = [own, *others]
    return FlushResponse(
        cancelled=sum(answer.cancelled for answer in answers),
        pending=sum(answer.pending for answer in answers),
        ids=own.ids,
        unreached=sum(answer.unreached for answer in answers),
    )
