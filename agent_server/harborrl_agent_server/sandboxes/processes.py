"""A local process whose end is its own end, started by a spawner beside the server.

A background child that keeps a pipe open would hold the exit code back. Here the exit counts, and output is read for a
moment longer.
"""

import asyncio
import contextlib
import itertools
import os
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, override

from harborrl_agent_server.sandboxes.spawner import LONGEST
from harborrl_agent_server.sandboxes.streams import CHUNK, Sink

DRAIN_SECONDS = 0.3

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
            outlets = await pipes.read((stdout, stderr), ended)
            if stdin is not None:
                await pipes.feed(stdin, ended)
            code: int = await ended
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_SECONDS):
                    await asyncio.gather(*(outlet.closed.wait() for outlet in outlets))
            for outlet in outlets:
                outlet.raise_failure()
            return code
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


class Pipes:
    """Between one process and this one."""

    def __init__(self, *, with_input: bool) -> None:
        self.theirs: list[int] = []
        self._ours: list[int] = []
        self._transports: list[asyncio.BaseTransport] = []
        try:
            self._add(*(os.pipe() if with_input else (os.open(os.devnull, os.O_RDONLY), -1)))
            for _ in ("output", "error output"):
                self._add(*reversed(os.pipe()))
        except OSError:
            self.close()  # what there is of them: without, a server at its limit would stay there
            raise

    def _add(self, theirs: int, ours: int) -> None:
        self.theirs.append(theirs)
        self._ours.append(ours)

    def given(self) -> None:
        """The process has its ends."""
        for descriptor in self.theirs:
            os.close(descriptor)
        self.theirs = []

    async def read(self, sinks: Sequence[Sink], ended: asyncio.Future[int]) -> list["Outlet"]:
        return [await self._outlet(place, sink, ended) for place, sink in enumerate(sinks, start=1)]

    async def _outlet(self, place: int, sink: Sink, ended: asyncio.Future[int]) -> "Outlet":
        transport, outlet = await asyncio.get_running_loop().connect_read_pipe(
            lambda: Outlet(sink, ended), self._taken(place)
        )
        self._transports.append(transport)
        return outlet

    async def feed(self, source: IO[bytes], ended: asyncio.Future[int]) -> None:
        """A process may end without reading all of its input; its exit code says whether that was right."""
        loop = asyncio.get_running_loop()
        transport, inlet = await loop.connect_write_pipe(lambda: Inlet(ended), self._taken(0))
        self._transports.append(transport)
        while not ended.done() and not inlet.is_closed and (data := source.read(CHUNK)):
            transport.write(data)
            await inlet.writable.wait()
        transport.close()

    def _taken(self, place: int) -> IO[bytes]:
        descriptor, self._ours[place] = self._ours[place], -1
        return os.fdopen(descriptor, "wb" if place == 0 else "rb", 0)

    def close(self) -> None:
        for transport in self._transports:
            if isinstance(transport, asyncio.WriteTransport) and transport.get_write_buffer_size():
                transport.abort()  # a close would wait for a child that has the other end and reads nothing
            else:
                transport.close()
        for descriptor in [*self.theirs, *self._ours]:
            if descriptor >= 0:
                os.close(descriptor)
        self.theirs, self._ours = [], []


class Outlet(asyncio.Protocol):
    """One output of a process. What its sink raises is what the wait for the process ends with."""

    def __init__(self, sink: Sink, ended: asyncio.Future[int]) -> None:
        self.closed = asyncio.Event()
        self._sink = sink
        self._ended = ended
        self._failure: Exception | None = None

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    @override
    def data_received(self, data: bytes) -> None:
        if self._failure is not None:
            return
        try:
            self._sink(data)
        except Exception as error:  # noqa: BLE001 - the loop would only log it
            self._failure = error
            if not self._ended.done():
                self._ended.set_exception(error)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()


class Inlet(asyncio.BaseProtocol):
    """The input of a process: full, or closed by a process that reads no more."""

    def __init__(self, ended: asyncio.Future[int]) -> None:
        self.writable = asyncio.Event()
        self.writable.set()
        self.is_closed = False
        ended.add_done_callback(lambda _: self.writable.set())

    @override
    def pause_writing(self) -> None:
        self.writable.clear()

    @override
    def resume_writing(self) -> None:
        self.writable.set()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        self.writable.set()


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
