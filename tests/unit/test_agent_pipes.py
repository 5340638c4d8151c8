"""Processes of local sandboxes and of Docker's client: the same pipes, whoever starts the process."""

import asyncio
import io
import os
import signal
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest

from harborrl_agent_server.sandboxes import client_processes
from harborrl_agent_server.sandboxes.processes import Spawner
from harborrl_agent_server.sandboxes.streams import Sink
from support.agent_http import eventually

ENVIRONMENT = {"PATH": os.environ["PATH"]}


class Start(Protocol):
    async def __call__(self, argv: Sequence[str], *, stdin: Any, stdout: Sink, stderr: Sink) -> int: ...


@pytest.fixture(params=["spawner", "client"])
async def start(request: pytest.FixtureRequest) -> AsyncIterator[Start]:
    if request.param == "client":
        yield partial(client_processes.run, env=ENVIRONMENT)
        return
    spawner = Spawner(ENVIRONMENT)
    yield spawner.run
    await spawner.close()


async def told(start: Start, script: str, stdin: bytes | None = None) -> tuple[int, bytes, bytes]:
    out, err = bytearray(), bytearray()
    given = None if stdin is None else io.BytesIO(stdin)
    code = await start(["sh", "-c", script], stdin=given, stdout=out.extend, stderr=err.extend)
    return code, bytes(out), bytes(err)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only how many


async def test_outputs_and_the_exit_code_arrive(start: Start) -> None:
    assert await told(start, "echo out; echo no >&2; exit 7") == (7, b"out\n", b"no\n")
    assert (await told(start, "kill -9 $$"))[0] == -9


async def test_input_goes_in_whole_and_need_not_be_read(start: Start) -> None:
    sent = os.urandom(3 * 2**20)
    assert await told(start, "cat", stdin=sent) == (0, sent, b"")
    assert (await told(start, "exit 3", stdin=sent))[0] == 3
    assert (await told(start, "exec <&-; echo deaf", stdin=sent))[:2] == (0, b"deaf\n")


async def test_without_input_there_is_nothing_to_read(start: Start) -> None:
    assert await told(start, "cat; echo done") == (0, b"done\n", b"")


async def test_a_background_child_that_holds_the_pipes_does_not_hold_the_exit_back(start: Start) -> None:
    async with asyncio.timeout(60):
        code, out, _ = await told(start, "sleep 600 & echo $!")
    os.kill(int(out), signal.SIGKILL)
    assert code == 0


async def test_what_a_sink_raises_ends_the_wait(start: Start) -> None:
    def full(_: bytes) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        await start(["yes"], stdin=None, stdout=full, stderr=full)


async def test_no_descriptor_is_left_however_it_ends(start: Start) -> None:
    await told(start, "true")
    before = descriptors()
    for _ in range(5):
        await told(start, "echo x", stdin=b"y")
        waiting = asyncio.ensure_future(told(start, "exec sleep 10", stdin=bytes(2**20)))
        await asyncio.wait({waiting}, timeout=0.05)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    await eventually(lambda: descriptors() == before)


async def test_a_client_goes_with_the_wait_for_it(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    start = partial(client_processes.run, env=ENVIRONMENT)
    waiting = asyncio.ensure_future(told(start, f"echo $$ >{note}.new; mv {note}.new {note}; exec sleep 600"))
    await eventually(note.exists)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


async def test_a_client_that_is_not_there_is_an_error_and_leaves_nothing() -> None:
    before = descriptors()
    with pytest.raises(FileNotFoundError):
        await client_processes.run(
            ["no-such-program"], env=ENVIRONMENT, stdin=io.BytesIO(b"x"), stdout=bytearray().extend, stderr=print
        )
    assert descriptors() == before
