"""A client program of this server, ended with the wait for it: one that hangs on its daemon must not stay."""

import asyncio
import contextlib
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from typing import IO

from harborrl_agent_server.sandboxes.pipes import Pipes
from harborrl_agent_server.sandboxes.streams import Sink

REAP_SECONDS = 1.0


async def run(
    argv: Sequence[str], *, env: Mapping[str, str], stdin: IO[bytes] | None, stdout: Sink, stderr: Sink
) -> int:
    """Run a process to its exit and return its code, negative for a signal. What a sink raises ends the process."""
    pipes = Pipes(with_input=stdin is not None)
    try:
        given, out, err = pipes.theirs
        process = await asyncio.create_subprocess_exec(*argv, env=dict(env), stdin=given, stdout=out, stderr=err)
        pipes.given()
        exiting = asyncio.ensure_future(process.wait())
        try:
            return await pipes.carry(stdin, (stdout, stderr), exit_of(exiting))
        finally:
            await ended(process, exiting)
    finally:
        pipes.close()


def exit_of(exiting: asyncio.Future[int]) -> asyncio.Future[int]:
    """The same, as a future that may also end with what a sink raises."""
    code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def tell(done: asyncio.Future[int]) -> None:
        if not (done.cancelled() or code.done()):
            code.set_result(done.result())

    exiting.add_done_callback(tell)
    return code


async def ended(process: Process, exiting: asyncio.Future[int]) -> None:
    """A process that is killed is waited for, so that it is no zombie of a loop that closes; one that hangs is not."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.wait({exiting}, timeout=REAP_SECONDS)
    exiting.cancel()
