"""A small HTTP server on loopback whose handlers may answer, or write to the connection whatever they like."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    body: Any
    headers: dict[str, str]
    writer: asyncio.StreamWriter
    gone: asyncio.Event
    """Set when the client has closed its connection."""


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: bytes = b"{}"
    header: str = ""
    """One line."""

    @classmethod
    def of(cls, value: Any, status: int = 200, header: str = "") -> "Answer":
        return cls(status, json.dumps(value).encode(), header)


Handler = Callable[[Asked], Awaitable[Answer | None]]
"""None: the handler has written itself, and the connection is closed."""


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[int]:
    """Yields the port. Open connections are closed at the end."""
    running: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            running.add(task)
            task.add_done_callback(running.discard)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await _converse(handler, reader, writer)
        writer.transport.abort()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=2**24, backlog=1024)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await server.wait_closed()


async def _converse(handler: Handler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while head := await reader.readuntil(b"\r\n\r\n"):
        first, *lines = head.decode().split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        data = await reader.readexactly(int(headers.get("content-length", 0)))
        gone = asyncio.Event()
        watch = asyncio.ensure_future(_watch(reader, gone))
        try:
            asked = Asked(method, path, json.loads(data) if data else None, headers, writer, gone)
            answer = await handler(asked)
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
        if answer is None or gone.is_set():
            return
        status = (
            f"HTTP/1.1 {answer.status} X",
            "Content-Type: application/json",
            f"Content-Length: {len(answer.body)}",
            *([answer.header] if answer.header else []),
        )
        writer.write("\r\n".join([*status, "", ""]).encode() + answer.body)
        await writer.drain()


async def _watch(reader: asyncio.StreamReader, gone: asyncio.Event) -> None:
    """A client says nothing while it waits for its answer: what can be read then is its leaving."""
    with suppress(ConnectionError):
        if await reader.read(1):
            raise AssertionError("a client that does not wait for its answer")
    gone.set()
