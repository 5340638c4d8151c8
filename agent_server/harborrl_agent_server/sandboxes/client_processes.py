"""A client program of this server, ended with the wait for it: one that hangs on its daemon must not stay.

asyncio's `Process.wait()` returns only when the pipes are closed too: a background child that keeps one open would hold
the exit code back. Here the exit counts, and output is read for a moment longer.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import IO, override

from harborrl_agent_server.sandboxes.streams import CHUNK, Sink

DRAIN_SECONDS = 0.3

REAP_SECONDS = 1.0


class _Protocol(asyncio.SubprocessProtocol):
    def __init__(self, sinks: Mapping[int, Sink]) -> None:
        self.sinks = sinks
        self.exited = asyncio.Event()
        self.gone = asyncio.Event()
        self.closed = asyncio.Event()
        self.writable = asyncio.Event()
        self.writable.set()
        self.failure: Exception | None = None

    @override
    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if self.failure is not None:
            return
        try:
            self.sinks[fd](data)
        except Exception as error:  # noqa: BLE001 - the loop would only log it; `run` raises it
            self.failure = error
            self.exited.set()

    @override
    def process_exited(self) -> None:
        self.gone.set()
        self.exited.set()
        self.writable.set()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()

    @override
    def pause_writing(self) -> None:
        self.writable.clear()

    @override
    def resume_writing(self) -> None:
        self.writable.set()


async def run(
    argv: Sequence[str], *, env: Mapping[str, str], stdin: IO[bytes] | None, stdout: Sink, stderr: Sink
) -> int:
    """Run a process to its exit and return its code, negative for a signal. What a sink raises ends the process."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.subprocess_exec(
        lambda: _Protocol({1: stdout, 2: stderr}),
        *argv,
        env=dict(env),
        stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
    )
    try:
        if stdin is not None:
            await _feed(transport, protocol, stdin)
        await protocol.exited.wait()
        if protocol.failure is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_SECONDS):
                    await protocol.closed.wait()
        if protocol.failure is not None:
            raise protocol.failure
        code = transport.get_returncode()
        if code is None:
            raise RuntimeError(f"{argv[0]} ended without a code")
        return code
    finally:
        transport.close()
        await _reaped(protocol)


async def _reaped(protocol: _Protocol) -> None:
    """A process that was killed is waited for, so that it is no zombie of a loop that closes; one that hangs is not."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(REAP_SECONDS):
            await protocol.gone.wait()


async def _feed(transport: asyncio.SubprocessTransport, protocol: _Protocol, source: IO[bytes]) -> None:
    """A process may end without reading all of its input; its exit code says whether that was right."""
    pipe = transport.get_pipe_transport(0)
    if not isinstance(pipe, asyncio.WriteTransport):
        return
    while not protocol.exited.is_set() and (data := source.read(CHUNK)):
        pipe.write(data)
        await protocol.writable.wait()
    pipe.close()
