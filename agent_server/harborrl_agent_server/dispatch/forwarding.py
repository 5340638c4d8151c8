"""One request handed on to a worker, and its answer handed back as it comes."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import override

import httpx
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from harborrl_agent_server.answering import client_watch, start
from harborrl_agent_server.app import LEAVING

LOG = logging.getLogger(__name__)

OWN = frozenset({b"host", b"content-length", b"transfer-encoding", b"connection", b"keep-alive", b"expect"})
"""Headers of one connection, not of the request."""

ADDED = frozenset({b"transfer-encoding", b"keep-alive", b"date", b"server"})
"""Headers of an answer that our own server puts on it."""


async def emptied(parts: list[bytes]) -> AsyncIterator[bytes]:
    """A body that is gone once it was sent: a trial lasts hours, and a row of a data set may be megabytes."""
    while parts:
        yield parts.pop()


class Forwarded(Response):
    """A client that hangs up is gone for the worker too; a worker that dies breaks the client's connection.

    Where no worker listens nothing has been started: 503, as of a server that leaves.
    """

    def __init__(self, client: httpx.AsyncClient, request: Request, body: bytes) -> None:
        super().__init__()
        headers = [(name, value) for name, value in request.headers.raw if name.lower() not in OWN]
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        headers.append((b"content-length", str(len(body)).encode()))
        self._request = client.build_request(request.method, target, headers=headers, content=emptied([body]))
        self._client = client

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with client_watch(receive) as gone:
            relay = asyncio.ensure_future(self._relay(scope, receive, send))
            try:
                await asyncio.wait({relay, gone}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                relay.cancel()
        if relay.done() and not relay.cancelled():
            relay.result()

    async def _relay(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False
        try:
            answer = await self._client.send(self._request, stream=True)
            try:
                headers = [(name, value) for name, value in answer.headers.raw if name.lower() not in ADDED]
                await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
                has_begun = True
                async for chunk in answer.aiter_raw():
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
            finally:
                await answer.aclose()
        except httpx.ConnectError:
            said = {"detail": "no worker has this session now, and the trial is not started; ask again"}
            await JSONResponse(said, 503, headers=LEAVING)(scope, receive, send)
        except httpx.HTTPError as error:
            LOG.warning("a worker was lost with a request: %s", type(error).__name__)
            if not has_begun:
                await send(start())  # without an end: the client sees a connection that broke
