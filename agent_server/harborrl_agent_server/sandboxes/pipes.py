"""Between a process and this one: its input fed, its outputs read, and its exit the end of both.

A background child that keeps a pipe open would hold the exit code back, as it does with asyncio's own streams. Here the
exit counts, and output is read for a moment longer.
"""

import asyncio
import contextlib
import os
from collections.abc import Sequence
from typing import IO, override

from harborrl_agent_server.sandboxes.streams import CHUNK, Sink

DRAIN_SECONDS = 0.3


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

    async def carry(self, stdin: IO[bytes] | None, sinks: Sequence[Sink], ended: asyncio.Future[int]) -> int:
        """The process' exit code, which `ended` becomes, with its input fed and its outputs read until then.

        `sinks` are of output and error output; what one raises ends the wait. To be called once.
        """
        outlets = [await self._outlet(place, sink, ended) for place, sink in enumerate(sinks, start=1)]
        if stdin is not None:
            await self._feed(stdin, ended)
        code = await ended
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                await asyncio.gather(*(outlet.closed.wait() for outlet in outlets))
        for outlet in outlets:
            outlet.raise_failure()
        return code

    async def _outlet(self, place: int, sink: Sink, ended: asyncio.Future[int]) -> "Outlet":
        transport, outlet = await asyncio.get_running_loop().connect_read_pipe(
            lambda: Outlet(sink, ended), self._taken(place)
        )
        self._transports.append(transport)
        return outlet

    async def _feed(self, source: IO[bytes], ended: asyncio.Future[int]) -> None:
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
