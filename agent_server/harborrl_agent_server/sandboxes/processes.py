"""Local processes, started by a spawner beside the server."""

import asyncio
import contextlib
import itertools
import os
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from harborrl_agent_server.sandboxes.pipes import Pipes
from harborrl_agent_server.sandboxes.spawner import LONGEST
from harborrl_agent_server.sandboxes.streams import Sink

PROGRAM = Path(__file__).with_name("spawner.py")


class SpawnError(Exception):
    """The process could not be started, or the spawner is gone and the exit code with it."""


class Spawner:
    """Starts processes for one event loop; its own process begins with the first of them."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment`: of every process."""
        self._environment = dict(environment)
        self._numbers = itertools.count()
        self._exits: dict[int, asyncio.Future[int]] = {}
        self._sending = asyncio.Lock()
        self._channel: socket.socket | None = None
        self._process: Process | None = None

    async def run(self, argv: Sequence[str], *, stdin: IO[bytes] | None, stdout: Sink, stderr: Sink) -> int:
        """Run a process to its exit and return its code, negative for a signal. What a sink raises ends the wait."""
        pipes = Pipes(with_input=stdin is not None)
        number, ended = next(self._numbers), asyncio.get_running_loop().create_future()
        self._exits[number] = ended
        try:
            await self._send(number, argv, pipes.theirs)
            pipes.given()
            return await pipes.carry(stdin, (stdout, stderr), ended)
        finally:
            pipes.close()
            self._exits.pop(number, None)

    async def _send(self, number: int, argv: Sequence[str], descriptors: Sequence[int]) -> None:
        parts = [str(number).encode(), *map(os.fsencode, argv)]
        message = b"\0".join(parts)
        if message.count(b"\0") != len(argv):
            raise ValueError("embedded null byte")
        loop = asyncio.get_running_loop()
        async with self._sending:
            channel = self._channel or await self._open()
            while True:
                try:
                    socket.send_fds(channel, [message], descriptors)
                except BlockingIOError:
                    await writable(loop, channel)
                except OSError as error:
                    raise SpawnError(f"the spawner is gone: {error}") from error
                else:
                    return

    async def _open(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST)
        with theirs, contextlib.ExitStack() as undone:
            undone.callback(ours.close)
            argv = [sys.executable, "-I", "-S", str(PROGRAM), str(theirs.fileno())]
            self._process = await asyncio.create_subprocess_exec(
                *argv, env=self._environment, stdin=DEVNULL, pass_fds=(theirs.fileno(),), start_new_session=True
            )
            undone.pop_all()
        self._channel = ours
        asyncio.get_running_loop().add_reader(ours, self._heard, ours)
        return ours

    def _heard(self, channel: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                message = receive(channel)
                if not message:
                    self._lose(channel)
                    return
                number, _, said = message.decode(errors="replace").partition(" ")
                ended = self._exits.get(int(number))
                if ended is not None and not ended.done():
                    if said.startswith("!"):
                        ended.set_exception(SpawnError(said[1:]))
                    else:
                        ended.set_result(int(said))

    def _lose(self, channel: socket.socket) -> None:
        asyncio.get_running_loop().remove_reader(channel)
        channel.close()
        self._channel = None
        for ended in self._exits.values():
            if not ended.done():
                ended.set_exception(SpawnError("the spawner ended"))

    async def close(self) -> None:
        """Its process goes; those that it started live on without it."""
        if self._channel is not None:
            self._lose(self._channel)
        if self._process is not None:
            await self._process.wait()


def receive(channel: socket.socket) -> bytes:
    """One message; empty when the other side has gone."""
    try:
        return channel.recv(4096)
    except BlockingIOError:
        raise
    except OSError:
        return b""


async def writable(loop: asyncio.AbstractEventLoop, channel: socket.socket) -> None:
    ready = asyncio.Event()
    loop.add_writer(channel, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(channel)
