"""Clients that stand still, or never come to an end: each wait for them has one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import HTTPException
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from harborrl_agent_server.app import BODY_LIMIT, body_of
from harborrl_agent_server.doors import doors
from harborrl_agent_server.gateway import BadRequestError
from harborrl_agent_server.gateway import body_of as gateway_body_of
from harborrl_agent_server.gateway_session import ModelSession, Upstream
from harborrl_agent_server.listeners import Listener

LOOK_SECONDS = 0.05

BEGINNINGS = [
    b"",
    b"GET /he",
    b"POST /run HTTP/1.1\r\nhost: x\r\n",
    b"GET /now HTTP/1.1\r\nhost: x\r\n\r\nGET /he",
]


def asking(*, endless: bool) -> tuple[Request, list[int]]:
    """A request whose body never ends, and what was read of it: one piece, or as much as anybody likes."""
    read: list[int] = []

    async def receive() -> dict[str, Any]:
        if read and not endless:
            await asyncio.Event().wait()
        read.append(2**20)
        return {"type": "http.request", "body": b" " * 2**20, "more_body": True}

    return Request({"type": "http", "headers": []}, receive), read


def nobodys_session() -> ModelSession:
    return ModelSession(Upstream("http://nowhere/v1", "m"), httpx.AsyncClient(), {}, [])


async def test_a_body_that_does_not_come_is_408_and_closes_its_connection() -> None:
    with pytest.raises(HTTPException) as told:
        await body_of(asking(endless=False)[0], limit_s=0.01)
    assert (told.value.status_code, told.value.headers) == (408, {"Connection": "close"})


async def test_a_body_without_end_is_413_and_not_read_for_ever() -> None:
    request, read = asking(endless=True)
    with pytest.raises(HTTPException) as told:
        await body_of(request)
    assert (told.value.status_code, told.value.headers) == (413, {"Connection": "close"})
    assert BODY_LIMIT < sum(read) <= 2 * BODY_LIMIT + 2**20


async def test_an_agents_body_that_does_not_come_is_no_request() -> None:
    with pytest.raises(BadRequestError, match="not complete within"):
        await gateway_body_of(asking(endless=False)[0], nobodys_session(), limit_s=0.01)


@contextlib.asynccontextmanager
async def listening(release: asyncio.Event) -> AsyncIterator[int]:
    """The port of a server that answers `/later` when it is let."""

    async def now(_: Request) -> PlainTextResponse:
        return PlainTextResponse("now")

    async def later(_: Request) -> PlainTextResponse:
        await release.wait()
        return PlainTextResponse("at last")

    app = Starlette(routes=[Route("/now", now), Route("/later", later, methods=["POST"])])
    [door] = doors("--port", "127.0.0.1", 0)
    server = Listener(uvicorn.Config(app, log_level="error"), look_s=LOOK_SECONDS)
    serving = asyncio.ensure_future(server.serve([door]))
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0)
    yield door.getsockname()[1]
    server.should_exit = True
    await serving


async def told(port: int, beginning: bytes) -> bytes:
    """All that comes until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(beginning)
    try:
        return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize("beginning", BEGINNINGS, ids=repr)
async def test_a_request_that_is_never_finished_loses_its_connection(beginning: bytes) -> None:
    async with listening(asyncio.Event()) as port:
        answer = await told(port, beginning)
    assert answer.endswith(b"now") if b"/now" in beginning else answer == b""


async def test_an_answer_that_takes_long_is_waited_for() -> None:
    release = asyncio.Event()
    request = b"POST /later HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    async with listening(release) as port:
        waiting = asyncio.ensure_future(told(port, request))
        for _ in range(2):  # each of which lasts two looks
            await told(port, b"GET /he")
        release.set()
        assert (await waiting).endswith(b"at last")
