"""The HTTP side of one `/run`: a client that waits for hours, and the proxies between."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import override

from fastapi import Response
from starlette.types import Receive, Scope, Send

from harborrl_agent_server.contract import RunResponse

Execute = Callable[[asyncio.Future[None]], Awaitable[RunResponse]]
"""Run the trial; the future completes when the client has hung up."""


class TrialResponse(Response):
    """Plain JSON when the trial is over within `heartbeat_s`, else 200 at once and a space every so many seconds.

    JSON may begin with white space. A silent connection is cut by many proxies, and a client that is gone without a
    word is noticed only when something is sent to it. 0: never a heartbeat.
    """

    media_type = "application/json"

    def __init__(self, execute: Execute, heartbeat_s: float) -> None:
        super().__init__()
        self._execute = execute
        self._heartbeat_s = heartbeat_s

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with client_watch(receive) as gone:
            answer = asyncio.ensure_future(self._execute(gone))
            try:
                was_begun = await self._beat_until(answer, send)
                body = (await answer).model_dump_json().encode()
            finally:
                answer.cancel()
        if not was_begun:
            await send(start(("content-length", str(len(body)))))
        await send({"type": "http.response.body", "body": body})

    async def _beat_until(self, answer: asyncio.Future[RunResponse], send: Send) -> bool:
        """Whether the response has begun by the time the answer is there."""
        was_begun = False
        while not (await asyncio.wait({answer}, timeout=self._heartbeat_s or None))[0]:
            if not was_begun:
                await send(start(("x-accel-buffering", "no")))
                was_begun = True
            await send({"type": "http.response.body", "body": b" ", "more_body": True})
        return was_begun


def start(*headers: tuple[str, str]) -> dict[str, object]:
    every = (("content-type", "application/json"), ("cache-control", "no-store"), *headers)
    return {
        "type": "http.response.start",
        "status": 200,
        "headers": [(name.encode(), value.encode()) for name, value in every],
    }


@contextlib.asynccontextmanager
async def client_watch(receive: Receive) -> AsyncIterator[asyncio.Future[None]]:
    """A future that completes when the client hangs up; the framework alone would never tell a handler that waits."""
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def listen() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        if not gone.done():
            gone.set_result(None)

    listener = asyncio.ensure_future(listen())
    try:
        yield gone
    finally:
        listener.cancel()
        gone.cancel()
