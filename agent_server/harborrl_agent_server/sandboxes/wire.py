"""Kubernetes' exec protocol over WebSocket: the first byte of a frame is its channel, the rest are the bytes.

Nothing here ends standard input: v4 cannot, and v5's close frame overtakes bytes on their way (docs/decisions/0033), so
the remote command has to know how much it will read.
"""

import asyncio
import json
from collections.abc import AsyncIterable
from typing import Protocol

import aiohttp

from harborrl_agent_server.errors import SandboxTransportError, SandboxUnusableError
from harborrl_agent_server.sandboxes.streams import Sink

V5 = "v5.channel.k8s.io"
V4 = "v4.channel.k8s.io"

NOTHING_TO_START = ("no such file or directory", "permission denied", "exec format error", "executable file not found")
"""What runc and crun say of a container whose /bin/sh was removed or broken. A full process table may be the node's."""

STDIN, STDOUT, STDERR, STATUS = 0, 1, 2, 3


class Socket(Protocol):
    """What is used of aiohttp's client WebSocket."""

    async def send_bytes(self, data: bytes) -> None: ...
    async def receive(self) -> aiohttp.WSMessage: ...
    async def close(self) -> bool: ...


async def converse(socket: Socket, *, stdin: AsyncIterable[bytes] | None, stdout: Sink, stderr: Sink) -> int:
    """Carry one command's bytes and return its exit code.

    Raises `SandboxTransportError` when the connection ends before the status: what the command did is then unknown.
    """
    feeding = asyncio.ensure_future(_feed(socket, stdin)) if stdin is not None else None
    sinks = {bytes([STDOUT]): stdout, bytes([STDERR]): stderr}
    status: bytes | None = None
    try:
        while True:
            message = await socket.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:
                if message.type in {aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED}:
                    break
                if message.type is aiohttp.WSMsgType.ERROR:
                    raise SandboxTransportError(f"the connection to the sandbox broke: {message.data}")
                continue
            channel, data = message.data[:1], message.data[1:]  # a proxy's frame of nothing has none
            if channel in sinks:
                if data:
                    sinks[channel](data)
            elif channel == bytes([STATUS]):
                status = (status or b"") + data
    finally:
        if feeding is not None:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
        await socket.close()
    if status is None:
        raise SandboxTransportError("the connection to the sandbox ended without the command's status")
    return exit_code(status)


def exit_code(status: bytes) -> int:
    """The exit code in a status frame.

    A failure that is not the command's own is a `SandboxTransportError`, or `SandboxUnusableError` where the container
    runtime reached the container and found nothing in it to start.
    """
    try:
        document = json.loads(status)
        if document.get("status") == "Success":
            return 0
        causes = (document.get("details") or {}).get("causes") or []
        for cause in causes:
            if cause.get("reason") == "ExitCode":
                return int(cause["message"])
    except (ValueError, KeyError, AttributeError) as error:
        raise SandboxTransportError(f"unreadable status frame: {status[:200]!r}") from error
    said = str(document.get("message") or document)
    text = f"the sandbox could not run the command: {said}"
    if "exec failed" in said and any(words in said for words in NOTHING_TO_START):
        raise SandboxUnusableError(text)
    raise SandboxTransportError(text)


async def _feed(socket: Socket, source: AsyncIterable[bytes]) -> None:
    """A command may end before it has read everything; the connection then closes, and its status tells the rest."""
    try:
        async for data in source:
            await socket.send_bytes(bytes([STDIN]) + data)
    except (ConnectionError, aiohttp.ClientError):
        return
